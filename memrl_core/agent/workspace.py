"""Where a person's banks live, the demo bank, and how the parts of a run are put together.

`MEMRL_HOME` decides the folder; without it, it is `.memrl` in the home folder.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from memrl_core.agent import Agent
from memrl_core.agent.live import LiveRun
from memrl_core.agent.rerun import Rerunner
from memrl_core.agent.setup import fits, give
from memrl_core.bank import MemoryBank
from memrl_core.bank.storage.addresses import ENDING, is_local
from memrl_core.bank.storage.places import copy_bank, delete_bank, is_bank, list_banks, valid_name
from memrl_core.embedders.base import Embedder
from memrl_core.embedders.fastembed import PREFIX as FASTEMBED_PREFIX
from memrl_core.embedders.fastembed import FastEmbedder
from memrl_core.embedders.hashing import HashingEmbedder
from memrl_core.embedders.ollama import OllamaEmbedder
from memrl_core.embedders.wordllama import NAMES as WORDLLAMA
from memrl_core.embedders.wordllama import WordLlamaEmbedder, is_installed
from memrl_core.environments import OWN_WORDS, REPEATS, environment_class, environment_names, make_environment
from memrl_core.environments.tasks import sample_data_path, tasks_of_set
from memrl_core.errors import (
    BankMissing,
    BankReadOnly,
    EnvironmentFailed,
    InputError,
    MemRLError,
    ModelChanged,
    ModelError,
    ModelMissing,
    NotABank,
    SettingsError,
    one_line,
)
from memrl_core.models import gguf, ollama
from memrl_core.models.base import LanguageModel, ModelOptions, checked_options
from memrl_core.models.gguf import GgufModel, is_gguf
from memrl_core.models.hosts import HostedModel, Hosts
from memrl_core.models.ollama_client import (
    OPENAI,
    OPENAI_COMPATIBLE,
    canonical_name,
    checked_address,
    default_address,
    ollama_address,
    openai_address,
)
from memrl_core.models.simulated import NAME, SimulatedModel, SimulatedReader
from memrl_core.policies import make_policy, policy_class, settings_of
from memrl_core.records import Message, RunInfo, StepTrace, Task
from memrl_core.settings import PolicySettings
from memrl_core.settings import home as home

SMALL = "gguf:smollm2"
"""The weights that come with the program."""
REPEATED = 3
"""So many repeats in the same state end an episode of a language model: small ones go round in circles."""
DEMO, REAL_DEMO = "demo", "demo-qwen"
RECORDINGS = {DEMO: "demo_bank", REAL_DEMO: "demo_qwen_bank"}
"""The banks that come recorded, and their folders in the sample data: one with the simulated model, one with a real."""
SIMULATED = "simulated"
OLLAMA_PREFIX = "ollama:"
HASHING = "hashing"
OPENAI_PREFIX = "openai:"

WEIGHTS = ("digest", "quantisation", "parameters", "bytes", "from")
"""The facts of a model that do not change while its weights are the same."""

PATIENCE = 5.0
"""Seconds within which a server has to say what model it has."""


class Preferences(BaseModel):
    """What a person chose for this machine; kept in `preferences.json` in the home folder."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    ollama_address: str = Field(default_factory=default_address)
    openai_address: str = Field(default_factory=openai_address)
    timeout: float = Field(60.0, ge=1, le=3600)
    rater: str = Field("", max_length=80)
    opened: dict[str, str] = Field(default_factory=dict, description="Banks outside the home folder: name to URI.")
    model_options: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="What new runs of a model begin with: the model's name to its options."
    )

    @field_validator("model_options")
    @classmethod
    def _usable(cls, kept: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Without what is no option of a model, as a file that was changed by hand may have."""
        usable = {}
        for model, options in kept.items():
            with suppress(SettingsError):
                usable[model] = checked_options(options)
        return usable


# --- preferences and banks --------------------------------------------------------------------------------------------


def banks_folder() -> Path:
    """The folder in which banks made by the app live; created when missing, where that is possible."""
    folder = home() / "banks"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def home_problem() -> str:
    """Why nothing can be stored in the home folder, as a sentence with its remedy; "" where it can be written."""
    folder = banks_folder()
    if os.access(folder, os.W_OK):
        return ""
    return (
        f"The folder {one_line(str(folder))} cannot be written, so that no bank and no preference is kept there. "
        "Looking at banks goes on, in the demo with a copy that is deleted when the program ends; set MEMRL_HOME to a "
        "folder that can be written."
    )


def load_preferences() -> Preferences:
    """The stored preferences; the defaults when there are none or they cannot be read."""
    try:
        return Preferences.model_validate_json((home() / "preferences.json").read_bytes())
    except (OSError, ValidationError):
        return Preferences()


def save_preferences(preferences: Preferences) -> None:
    """Store the preferences, whole or not at all. Raises `InputError` when the folder cannot be written."""
    target = home() / "preferences.json"
    draft = target.with_suffix(".draft")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # What nobody chose stays open, so that OLLAMA_HOST goes on deciding it.
        draft.write_text(preferences.model_dump_json(indent=1, exclude_unset=True))
        draft.replace(target)
    except OSError as error:
        raise InputError(
            f"The preferences could not be saved ({error.strerror}). They stay in force until the app ends; make "
            f"{target.parent} writable, or set MEMRL_HOME to another folder, to keep them."
        ) from None


def keep_options(model: str, options: Mapping[str, Any]) -> None:
    """Begin every new run of `model` on this machine with these options, those of before forgotten.

    Raises `SettingsError` for what is no option, and `InputError` where the preferences cannot be written.
    """
    preferences = load_preferences()
    kept = {name: known for name, known in preferences.model_options.items() if name != model}
    if usable := checked_options(options):
        kept[model] = usable
    save_preferences(preferences.model_copy(update={"model_options": kept}))


def remember_bank(uri: str) -> str:
    """Keep the address of a bank outside the home folder; returns the name it goes by here, which no other has.

    Raises `InputError` when its last part cannot be a name, or the preferences cannot be written.
    """
    preferences = load_preferences()
    here = {summary.name for summary in list_banks(banks_folder())}
    for name, kept in preferences.opened.items():
        if kept == uri and name not in here:
            return name
    wanted = valid_name(Path(uri.rstrip("/")).name.removesuffix(ENDING))
    taken = here | preferences.opened.keys()
    name = wanted if wanted not in taken else next(n for i in count(2) if (n := f"{wanted}-{i}") not in taken)
    save_preferences(preferences.model_copy(update={"opened": {**preferences.opened, name: uri}}))
    return name


def demo_bank(name: str = DEMO) -> Path:
    """The person's own copy of one of `RECORDINGS`; made from the recorded one when it is not there.

    Where the home folder cannot be written, it is one for this process alone. Raises `BankMissing` when this
    installation came without the recording.
    """
    target = banks_folder() / name
    if not is_bank(target) and home_problem():
        return _passing_copy(name)
    if not target.exists():
        try:
            copy_bank(_recording(name), target)
        except NotABank:
            if not target.exists():
                raise
            # Another browser or process has made it meanwhile.
    return target


@cache
def _passing_copy(name: str) -> Path:
    """A copy of a recorded bank that is deleted when the program ends. Raises `BankReadOnly`."""
    try:
        folder = Path(mkdtemp(prefix="memrl-"))
    except OSError as error:
        raise BankReadOnly(f"{home_problem()} Nor can the folder for temporary files ({error.strerror}).") from None
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    copy_bank(_recording(name), folder / name)
    return folder / name


def reset_demo_bank(name: str = DEMO) -> Path:
    """Put a recorded bank back; what was added to the copy is lost. Raises as `demo_bank` does."""
    source, target = _recording(name), banks_folder() / name
    if target.exists():
        delete_bank(target)
    copy_bank(source, target)
    return target


def _recording(name: str) -> Path:
    source = sample_data_path() / RECORDINGS[name]
    if not source.is_dir():
        raise BankMissing("The recorded demo bank is not part of this installation. Start a live run instead.")
    return source


def delete(uri: str) -> None:
    """Delete a bank that lies anywhere."""
    if is_local(uri):
        delete_bank(Path(uri))
    else:
        MemoryBank.open(uri).write.discard()


# --- embedders by name ------------------------------------------------------------------------------------------------


def default_embedder() -> str:
    """The embedder of new banks where nobody chooses: WordLlama, or hashing on a machine that has no wheel of it."""
    return WORDLLAMA[0] if is_installed() else HASHING


def make_embedder(name: str, preferences: Preferences) -> Embedder:
    """The embedder a bank remembers as `name`: "hashing-1024", "wordllama-256", "fastembed:NAME", "openai:NAME", or a
    model of Ollama, also as "ollama:NAME"; "hashing" and "wordllama" choose these.

    Raises `ModelError` when it is not installed, or a server is needed and cannot give it.
    """
    if name.startswith(HASHING):
        return _hashing(name)
    if name in WORDLLAMA:
        return WordLlamaEmbedder()
    if name.startswith(FASTEMBED_PREFIX):
        return FastEmbedder(name)
    if name.startswith(OPENAI_PREFIX):
        _openai()
        from memrl_core.embedders.openai import OpenAIEmbedder

        return OpenAIEmbedder(name, preferences.openai_address, preferences.timeout)
    return OllamaEmbedder(
        name.removeprefix(OLLAMA_PREFIX), address=preferences.ollama_address, timeout=preferences.timeout
    )


def new_embedder(name: str, preferences: Preferences) -> Embedder:
    """The embedder `name` for new vectors. Raises `ModelError`, and `InputError` for a plain name of a model of which
    Ollama says that it makes no embeddings: "ollama:NAME" takes it all the same.
    """
    made = make_embedder(name, preferences)
    if isinstance(made, OllamaEmbedder) and not name.startswith(OLLAMA_PREFIX):
        if ollama.show_model(made.address, made.name, preferences.timeout).can_embed:
            return made
        others = [one_line(model.name) for model in ollama.list_models(made.address) if model.can_embed]
        choose = f"Choose {' or '.join(others[:3])}" if others else "Run `ollama pull nomic-embed-text` and choose that"
        raise InputError(
            f"{one_line(made.name)} is a model that answers; Ollama does not list embeddings among what it can do. "
            f"Nothing was created. {choose}; or name it {OLLAMA_PREFIX}{one_line(made.name)} to take its vectors all "
            "the same."
        )
    return made


def embedder_name(name: str) -> str:
    """What a bank calls the embedder `name`; no server is asked."""
    if name.startswith(HASHING):
        return _hashing(name).name
    if name.startswith(OPENAI_PREFIX):
        return name
    return WORDLLAMA[-1] if name in WORDLLAMA else canonical_name(name.removeprefix(OLLAMA_PREFIX))


def embeds_here(name: str) -> bool:
    """Whether an embedder runs in this program at once, without a server or a download."""
    return name.startswith(HASHING) or name in WORDLLAMA


def _hashing(name: str) -> HashingEmbedder:
    size = name.removeprefix(f"{HASHING}-")
    return HashingEmbedder(int(size)) if size.isascii() and size.isdigit() else HashingEmbedder()


def embedder_of(bank: MemoryBank, preferences: Preferences) -> Embedder:
    """The embedder that made the bank's vectors.

    Raises `ModelError` when it cannot be had, `EmbedderMismatch` when that name now stands for another.
    """
    made = make_embedder(bank.embedder.name, preferences)
    bank.must_match(made)
    return made


def create_bank(uri: str, embedder: str, preferences: Preferences) -> MemoryBank:
    """A new bank for vectors of `embedder` (see `new_embedder`). Raises `ModelError`, `InputError`, `NotABank`."""
    made = new_embedder(embedder, preferences)
    return MemoryBank.create(uri, made.name, made.dimension, made.digest, made.version)


# --- models by name ---------------------------------------------------------------------------------------------------


def make_model(name: str, preferences: Preferences, hosts: Hosts | None = None) -> LanguageModel:
    """The embedded model ("simulated"), one that reads less ("simulated-50": half of the time), a file that
    runs in this process ("gguf:smollm2"), one of an OpenAI-compatible server ("openai:NAME"), or an Ollama model, also
    as "ollama:NAME"; the last two at any of the `hosts`, where some are given. Raises `InputError` and `ModelMissing`.
    """
    if name == SIMULATED:
        return SimulatedModel()
    if found := NAME.fullmatch(name):
        return SimulatedReader(int(found[1]))
    if is_gguf(name):
        return GgufModel(name)
    if hosts is None:
        return _model_at(_address_of(name, preferences), name, preferences.timeout)
    models = {address: _model_at(address, name, preferences.timeout, hosts.trusted) for address in hosts.addresses}
    patience = min(preferences.timeout, PATIENCE)
    return HostedModel(models, hosts, lambda address: _facts_at(address, name, patience, False, hosts.trusted))


def _model_at(address: str, name: str, timeout: float, trusted: bool = False) -> LanguageModel:
    if name.startswith(OPENAI_PREFIX):
        served: LanguageModel = _openai().OpenAIModel(name, address, timeout, trusted)
        return served
    return ollama.OllamaModel(name.removeprefix(OLLAMA_PREFIX), address=address, timeout=timeout)


def _address_of(model: str, preferences: Preferences) -> str:
    return preferences.openai_address if model.startswith(OPENAI_PREFIX) else preferences.ollama_address


def _openai() -> Any:
    """The module of OpenAI-compatible servers, imported only where it is needed.

    Raises `ModelMissing` where their client is not installed.
    """
    if importlib.util.find_spec("openai") is None:
        raise ModelMissing(
            "The client of OpenAI-compatible servers is not installed. Nothing was started; run `pip install openai`, "
            "or choose another model."
        )
    from memrl_core.models import openai

    return openai


def hosts_of(model: str, given: Sequence[str], per_host: int, folder: Path, trusted: bool) -> Hosts:
    """The hosts of a model from what a person writes, such as `10.0.0.7` or `http://gpu:8080/v1`.

    Raises `InputError` for what is no address, and for a model that runs in this program.
    """
    if is_simulated(model) or is_gguf(model):
        raise InputError(f"{one_line(model)} runs in this program and has no hosts. Nothing was started.")
    if model.startswith(OPENAI_PREFIX):
        whole = (one if "://" in one else f"http://{one}{'' if '/' in one else '/v1'}" for one in given)
        addresses = [checked_address(one, *OPENAI_COMPATIBLE) for one in whole]
    else:
        addresses = [ollama_address(one) for one in given]
    return Hosts(tuple(dict.fromkeys(addresses)), per_host, folder, trusted)


def must_be_there(model: str, preferences: Preferences, hosts: Hosts | None = None, ask: bool = True) -> dict[str, Any]:
    """What the model's server, or file, says of its weights; empty for a simulated one.

    Raises `ModelError` unless the model can be asked now, at one of the `hosts` where some are given, and `InputError`
    for what is no name of one, or hosts that have different weights. Without `ask`, nothing is loaded or answered.
    """
    if is_simulated(model):
        return {}
    if is_gguf(model):
        if ask:
            gguf.must_load(model)
        return gguf.facts(model)
    if hosts is None:
        return _facts_at(_address_of(model, preferences), model, preferences.timeout, ask)
    facts_by_address = {}
    for address in hosts.alive():
        try:
            facts_by_address[address] = _facts_at(address, model, preferences.timeout, ask, hosts.trusted)
        except ModelError as error:
            hosts.pass_over(address, str(error))
    if not facts_by_address:
        raise hosts.nobody(model)
    (first, facts), *others = facts_by_address.items()
    for address, theirs in others:
        if differs := _other_weights(facts, theirs):
            raise InputError(
                f"Under the name {one_line(model)} {first} and {address} have different weights ({differs[0]}). "
                "Nothing was started; install the same on both, or leave one of them out."
            )
    return facts


def _facts_at(address: str, model: str, timeout: float, ask: bool, trusted: bool = False) -> dict[str, Any]:
    if model.startswith(OPENAI_PREFIX):
        reported: dict[str, Any] = _openai().facts(model, address, timeout, ask, trusted)
        return reported
    return ollama.facts(address, model.removeprefix(OLLAMA_PREFIX), timeout)


def _must_be_the_same(info: RunInfo, preferences: Preferences, hosts: Hosts | None = None) -> None:
    """Raise `ModelChanged` where other weights answer under the name of a run's model than when it began.

    A model that cannot be reached now raises nothing here.
    """
    if not info.model_facts:
        return
    try:
        hurried = preferences.model_copy(update={"timeout": min(preferences.timeout, PATIENCE)})
        now = must_be_there(info.model, hurried, hosts, ask=False)
    except ModelError:
        return
    if differs := _other_weights(info.model_facts, now):
        name = differs[0]
        raise ModelChanged(
            f"Under the name {one_line(info.model)} other weights answer now than when the run {info.id} began: {name} "
            f"{one_line(str(info.model_facts[name]))[:80]} then, {one_line(str(now[name]))[:80]} now. All steps are "
            "kept and none was added. Start a new run, which may begin with what this one knows, or install the "
            "weights of then."
        )


def _other_weights(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The facts about weights that both sides have, and that differ."""
    return [name for name in WEIGHTS if name in one and name in other and one[name] != other[name]]


def rendered(model: str, messages: Sequence[Message], options: ModelOptions, preferences: Preferences) -> str:
    """The text that the chat template of a model makes of `messages`, as it is installed now.

    Raises `InputError` where the server does not say, and `ModelError`.
    """
    if is_gguf(model):
        return GgufModel(model).rendered(messages, options)
    address = _address_of(model, preferences)
    if model.startswith(OPENAI_PREFIX):
        raise InputError(f"The server at {address} applies the chat template itself, and does not show the result.")
    name, timeout = model.removeprefix(OLLAMA_PREFIX), preferences.timeout
    return ollama.rendered(address, name, messages, options.think, timeout)


def is_simulated(model: str) -> bool:
    """Whether `model` names the embedded model or one of its readers."""
    return model == SIMULATED or NAME.fullmatch(model) is not None


def is_of_ollama(model: str) -> bool:
    """Whether `model` names a model of Ollama, which a plain name does."""
    return not is_simulated(model) and not is_gguf(model) and not model.startswith(OPENAI_PREFIX)


def models_at_hand(of_ollama: Iterable[str]) -> list[str]:
    """The models that can answer here, what to begin with first: Ollama's, those in this program, the simulated one."""
    own = [f"{gguf.PREFIX}{name}" for name in gguf.PACKAGED]
    return [*of_ollama, *(name for name in own if not lacks(name)), SIMULATED]


def lacks(model: str) -> str:
    """What stands in the way of a model that runs in this program, as a sentence with its remedy; "" when nothing."""
    try:
        gguf.weights_of(model)
    except MemRLError as error:
        return str(error)
    return ""


def openai_models(preferences: Preferences) -> tuple[str, ...]:
    """The models of the OpenAI-compatible server as they are named here; none where no such server was chosen.

    Raises `ModelError` when it does not list them, and `InputError` for a bad address.
    """
    if preferences.openai_address == OPENAI and not os.environ.get("OPENAI_API_KEY"):
        return ()
    return tuple(OPENAI_PREFIX + name for name in _openai().list_models(preferences.openai_address))


# --- runs -------------------------------------------------------------------------------------------------------------


def start_run(
    bank: MemoryBank,
    *,
    environment: str,
    tasks: str,
    task_count: int = 0,
    settings: PolicySettings | None = None,
    seed: int = 0,
    model: str = SIMULATED,
    base: str | None = None,
    run: str | None = None,
    policy: str = "memrl",
    environment_options: dict[str, Any] | None = None,
    model_options: Mapping[str, Any] | None = None,
    model_facts: Mapping[str, Any] | None = None,
    by: str = "",
) -> RunInfo:
    """Start a run in `bank`, with what its world gives it or with what the run `base` knows now; `by` is the person.

    `settings` are the policy's; None stands for its defaults. `model_facts` are what `must_be_there` gave just now; the
    model is asked where they are not given. Options of the environment that nobody chose are those of `begins_with`;
    what its world draws is drawn from the seed. Raises `InputError` or `SettingsError` for a part or a setting that
    does not exist, `EnvironmentFailed` for a world that this machine cannot run, and `ModelError` for a model that
    cannot be asked, before anything is written; and `NotAllowed`.
    """
    chosen = settings_of(policy, settings.model_dump() if settings is not None else {}).model_dump()
    make_policy(policy, chosen)
    simulated = is_simulated(model)
    found = environment_class(environment)
    options = {**begins_with(environment, model), **(environment_options or {})}
    if found.seed_option and found.seed_option not in options:
        known = bank.run(base).environment_options if base else {}
        options[found.seed_option] = known.get(found.seed_option, seed)
    world = make_environment(environment, **options)
    if lacking := found.missing():
        raise EnvironmentFailed(f"{lacking} Nothing was started.")
    if missing := fits(policy, environment, chosen, people_reward=True):
        raise InputError(f"{missing} Nothing was started; choose another method, or another environment.")
    info = RunInfo(
        id=run or bank.write.new_run_id(environment),
        environment=environment,
        tasks=tasks,
        policy=policy,
        settings=chosen,
        seed=seed,
        model=model,
        simulated=simulated,
        embedder=bank.embedder.name,
        base=base,
        base_step=bank.next_step(base) - 1 if base else 0,
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
        task_count=task_count,
        environment_options=options,
        model_options=checked_options(model_options or {}),
    )
    tasks_of(info)
    facts = must_be_there(model, load_preferences()) if model_facts is None else model_facts
    info = replace(info, model_facts=dict(facts))
    first = [(intent, experience, "") for intent, experience in world.first_memories()] if base is None else []
    embedder = embedder_of(bank, load_preferences()) if first else None
    bank.write.start_run(info, by)
    if embedder is not None:
        give(bank, info.id, "given", first, embedder)
    return info


def begins_with(environment: str, model: str) -> Mapping[str, Any]:
    """The options of `environment` that a run with `model` begins with, where nobody chose."""
    found = environment_class(environment)
    if is_simulated(model):
        return found.simulated_options
    # Asked for a lesson, a model of this size writes prose that has nothing to do with it, and memories fill with it.
    begun: dict[str, Any] = {OWN_WORDS: False} if model == SMALL else {}
    return begun | ({REPEATS: REPEATED} if REPEATS in found.Options.model_fields else {})


def tasks_of(info: RunInfo) -> list[Task]:
    """The tasks of a run, in order; empty when its steps begin with what a person types.

    Raises `InputError` when the set is not here, is for another environment, or has fewer than the run wants, and
    `EnvironmentFailed` when an environment that makes its tasks itself cannot.
    """
    if not info.tasks:
        return []
    tasks = tasks_of_set(info.tasks)
    if others := {task.environment for task in tasks} - {info.environment}:
        raise InputError(
            f"The tasks of {info.tasks} are for {', '.join(sorted(others))}, not for {info.environment}. Choose the "
            "environment that they are for."
        )
    if info.task_count > len(tasks):
        raise InputError(
            f"The set {info.tasks} has {len(tasks):,} tasks; {info.task_count:,} were asked for. Ask for at most "
            f"{len(tasks):,}, or for 0, which takes all."
        )
    return tasks[: info.task_count or len(tasks)]


def fork(
    bank: MemoryBank,
    run: str,
    step: int,
    settings: Mapping[str, Any],
    name: str | None = None,
    by: str = "",
    model: str = "",
) -> RunInfo:
    """Start a run that knows what `run` knew before `step`, and goes on from there under other settings.

    It meets the tasks and seeds that the other met, because it goes on with its numbers. `model` is another model than
    that of the other run, with that model's options and facts; "" keeps it. Raises `InputError` for a step
    that the run does not have or an environment that is not here, `SettingsError` for a value out of range,
    `ModelError` for a model that cannot be asked, and `NotAllowed` when the person `by` may not manage the bank.
    """
    info = bank.run(run)
    bank.trace(run, step)
    make_policy(info.policy, settings)
    make_environment(info.environment, **info.environment_options)
    forked = replace(
        info,
        id=name or bank.write.new_run_id(f"{run}-fork"),
        settings=dict(settings),
        base=run,
        base_step=step - 1,
        first_step=step,
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )
    if model and model != info.model:
        preferences = load_preferences()
        options = checked_options(preferences.model_options.get(model, {}))
        facts = dict(must_be_there(model, preferences))
        forked = replace(forked, model=model, simulated=is_simulated(model), model_options=options, model_facts=facts)
    bank.write.start_run(forked, by)
    return forked


def what_carries_over(bank: MemoryBank, info: RunInfo) -> str:
    """What a run can use of what it begins with, where another policy wrote that; empty otherwise."""
    if info.base is None or bank.run(info.base).policy == info.policy:
        return ""
    theirs = bank.run(info.base)
    return f"{info.base} was made by the policy {theirs.policy}. {policy_class(info.policy).spec.carries_over}"


def can_go_on(info: RunInfo) -> bool:
    """Whether this program has the world of a run; one that was imported or recorded can only be looked at."""
    return info.environment in environment_names()


def live_run(bank: MemoryBank, run: str, preferences: Preferences, hosts: Hosts | None = None) -> LiveRun:
    """The run with everything it needs to go on, its model at `hosts` where some are given.

    Raises `ModelError` when its embedder cannot be had, `EmbedderMismatch` when that is no longer what made the bank,
    and `ModelChanged` when its model has other weights now.
    """
    info = bank.run(run)
    _must_be_the_same(info, preferences, hosts)
    embedder = embedder_of(bank, preferences)
    world = make_environment(info.environment, **info.environment_options)
    return LiveRun(Agent(bank, run, make_model(info.model, preferences, hosts), embedder, world), tasks_of(info))


def reconnect(live: LiveRun, preferences: Preferences) -> None:
    """Give an idle run its model and embedder anew, as after a change of address; the step under way goes on.

    Raises `ModelError` when the embedder cannot be had; the model is then the new one already. Raises `ModelChanged`
    before anything is changed.
    """
    bank, run = live.agent.bank, live.agent.run_id
    _must_be_the_same(bank.run(run), preferences)
    live.agent.model = make_model(bank.run(run).model, preferences)
    live.agent.embedder = embedder_of(bank, preferences)


def rerunner(bank: MemoryBank, trace: StepTrace, preferences: Preferences, model: str = "") -> Rerunner:
    """What answers a finished step of this program's agent again, with its world and with its model or another `model`.

    Raises `InputError` for a step of another agent: its world is not here.
    """
    info = bank.run(trace.run)
    if trace.origin != "agent":
        raise InputError("This step was not made here, so its world and model cannot be asked again.")
    return Rerunner(
        bank,
        trace,
        make_model(model or info.model, preferences),
        make_environment(info.environment, **info.environment_options),
        embed=lambda texts: embedder_of(bank, preferences).embed(texts),
        must_hold=None if model not in ("", info.model) else lambda: _must_be_the_same(info, preferences),
    )
