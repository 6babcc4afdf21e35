"""What the loopback server's models say: enough wit to drive the whole program, the same for the same request."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

CHOICES = "You can:"
GENERAL_ADVICE = "Find the object first.\nTake the appliance that worked before.\nPut the object where it belongs."
TREATMENTS = {
    "heat": ("hot", "warm", "heat"),
    "clean": ("clean", "wash", "spotless"),
    "cool": ("cold", "chill", "cool"),
    "examine": ("look", "examine", "inspect", "lamp"),
}


def answer(messages: Sequence[dict[str, Any]], seed: int) -> str:
    """An action among those offered last; general advice, or an echo of the task, where no action is offered."""
    shown = [str(message["content"]) for message in messages if message["role"] == "assistant"]
    asked = [str(message["content"]) for message in messages if message["role"] == "user"]
    offered = _after_choices(asked[-1]) if asked else []
    if not offered:
        system = next((str(message["content"]) for message in messages if message["role"] == "system"), "")
        return GENERAL_ADVICE if system.startswith("You turn") else f"In short: {_task(asked[0] if asked else '')}."
    remembered = re.findall(r"^> (.+)$", asked[0].partition("## Your task")[0], flags=re.MULTILINE)
    for action in remembered:
        if action in offered and action not in shown:
            return action
    return _sensible(_task(asked[0]), [action for action in offered if action not in shown] or offered, shown, seed)


def form(schema: Mapping[str, Any], messages: Sequence[dict[str, Any]]) -> str:
    """A JSON schema filled in: yes to every question, one entry a list, but one for each memory in a list of them."""
    reported = str(messages[-1]["content"])
    return json.dumps(_value(schema, "", schema.get("$defs", {}), reported))


def embedding(text: str, dimension: int) -> list[float]:
    """How often each hashed word occurs, with a hashed sign; not of unit length."""
    vector = [0.0] * dimension
    for word in re.findall(r"\w+", text.lower()) or [text]:
        digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
        vector[int.from_bytes(digest[:4], "big") % dimension] += 1.0 if digest[4] % 2 else -1.0
    vector[0] += 0.01
    return vector


def _value(schema: Mapping[str, Any], name: str, defined: Mapping[str, Any], reported: str) -> Any:
    """What stands in a form under `name`."""
    if "$ref" in schema:
        return _value(defined[schema["$ref"].rpartition("/")[2]], name, defined, reported)
    if "anyOf" in schema:
        return _value(schema["anyOf"][0], name, defined, reported)
    if "enum" in schema or "const" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    kind = schema.get("type")
    if kind == "object":
        return {key: _value(part, key, defined, reported) for key, part in schema.get("properties", {}).items()}
    if kind == "array":
        return _entries(schema, name, defined, reported)
    if kind == "number":
        return 0.5
    if kind == "integer":
        return schema.get("minimum", 1)
    return True if kind == "boolean" else f"{name.replace('_', ' ').capitalize()}: {_task(reported)}"


def _entries(schema: Mapping[str, Any], name: str, defined: Mapping[str, Any], reported: str) -> list[Any]:
    entry = _value(schema["items"], name, defined, reported)
    if isinstance(entry, dict):
        memories = re.findall(r"^\[memory ([^\]\n]+)\]$", reported, flags=re.MULTILINE)
        return [{**entry, "memory_id": memory} for memory in memories] if "memory_id" in entry else [entry]
    if isinstance(entry, str):
        return re.findall(r"^> (.+)$", reported, flags=re.MULTILINE) if name == "steps" else []
    return [entry]


def _sensible(task: str, open_actions: Sequence[str], shown: Sequence[str], seed: int) -> str:
    words = set(re.findall(r"\w+", task.lower()))
    kinds = {word.removesuffix("s") for word in words} | words
    wanted = next((verb for verb, signs in TREATMENTS.items() if words & set(signs)), "")
    treated = any(wanted and action.startswith(wanted) for action in shown)
    if wanted and not treated:
        treatments = [action for action in open_actions if action.startswith(f"{wanted} ")]
        if treatments:
            return treatments[seed % len(treatments)]
    for verb, place in (("put", True), ("take", False)):
        for action in open_actions:
            first, thing, *rest = action.split()
            if first == verb and thing in kinds and (not place or rest[-1] in words):
                return action
    return open_actions[seed % len(open_actions)]


def _after_choices(text: str) -> list[str]:
    _, found, below = text.rpartition(f"{CHOICES}\n")
    return re.findall(r"^- (.+)$", below, flags=re.MULTILINE) if found else []


def _task(text: str) -> str:
    found = re.findall(r"^Task: (.+)$", text, flags=re.MULTILINE)
    return found[-1] if found else " ".join(text.split()[:12])
