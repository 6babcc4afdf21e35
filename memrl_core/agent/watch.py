"""One line around any retriever: every call becomes a step of a bank, with query, hits, scores and latency.

    retriever = watch(retriever, "bank")

What the retriever gives, and what it raises, is passed on as it is; all that recording needs is done in another thread.
"""

from __future__ import annotations

import atexit
import hashlib
import inspect
import time
import weakref
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import wraps
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

from memrl_core.agent.preferences import banks_folder, load_preferences
from memrl_core.agent.recorder import Recorder
from memrl_core.agent.run_parts import bank_at, embedder_of, embeds_here
from memrl_core.bank import MemoryBank
from memrl_core.embedders.base import Embedder, embedded
from memrl_core.errors import InputError, MemRLError
from memrl_core.logs import loggable, logger
from memrl_core.records import SignalKind

__all__ = ["wait_for_watched", "watch", "watched_bank"]

Retriever = TypeVar("Retriever")
TEXTS = ("text", "memory", "content", "page_content", "document", "value")
SCORES: dict[str, SignalKind | None] = {
    "score": None,
    "relevance_score": None,
    "similarity": None,
    "distance": "distance",
    "rank": "rank",
}
"""Under which names a hit holds its text and its score, and what a score of that name is."""
COLUMNS = {"ids": "id", "documents": "document", "distances": "distance"}
"""The lists of an answer of Chroma, and the name of what each holds for a hit."""
WATCHED = "watched"
_log = logger(__name__)
_mark = "_memrl_watched"


def watch(
    retriever: Retriever,
    bank: str | Path | MemoryBank | None = None,
    run: str = WATCHED,
    *,
    kind: SignalKind | None = None,
    signal: str | None = None,
) -> Retriever:
    """The retriever, of which every call is recorded as a step of the run.

    `retriever` is a callable `(query, k) → hits`, also an async one, which comes back wrapped, or a retriever of
    LangChain or LlamaIndex, which comes back itself. A hit is an id, a text, (id, score), (id, score, text), a mapping,
    or a document of these libraries; the columns that `collection.query` of Chroma gives are hits, too. `kind` and
    `signal` say what the scores are: see `RecordedStep.recalled`. A call with a list of queries is a step with a
    retrieval for each. Hits that the bank does not know are remembered with their texts, where the bank's embedder runs
    here. Without a `bank` it is the one that `memrl app --watch` shows; one that is not there is made. Raises
    `InputError` for what is no retriever, and what opening a bank raises.
    """
    names = [name for name in ("retrieve", "invoke") if callable(getattr(retriever, name, None))]
    if not names and not callable(retriever):
        raise InputError(
            f"A {type(retriever).__name__} is no retriever: give a callable (query, k) → hits, or a retriever of "
            "LangChain or LlamaIndex. Nothing is watched."
        )
    if getattr(retriever, _mark, None) == run:
        return retriever
    watcher = _Watcher(bank if isinstance(bank, MemoryBank) else watched_bank(bank), run, kind, signal)
    if not names:
        made: Any = watcher.around(retriever)
        setattr(made, _mark, run)
        return made  # type: ignore[no-any-return]
    asked = names[0]
    for name in (asked, f"a{asked}"):
        if callable(method := getattr(retriever, name, None)):
            # Models of pydantic refuse names that they do not declare.
            object.__setattr__(retriever, name, watcher.around(method))
    object.__setattr__(retriever, _mark, run)
    return retriever


def watched_bank(place: str | Path | None = None) -> MemoryBank:
    """The bank at a place, or the one of watched retrievers; made with the default embedder where it is not there."""
    return bank_at(str(place or banks_folder() / WATCHED), load_preferences())


class _Failed(Exception):
    """What a retriever raised, for the step that it ended."""


class _Watcher:
    """Records the calls of one retriever, in the order in which they ended, in a thread of its own."""

    def __init__(self, bank: MemoryBank, run: str, kind: SignalKind | None, signal: str | None) -> None:
        self._bank, self._kind, self._signal = bank, kind, signal
        self._recorder = Recorder(bank, run)
        self._embedder: Embedder | None = None
        self._is_looked_for = False
        self._behind = ThreadPoolExecutor(1, "watch")
        # Python waits for the thread first, and then calls this.
        atexit.register(self._close)
        _watchers.add(self)

    def wait(self) -> None:
        """Wait until all calls that have ended are recorded."""
        self._behind.submit(lambda: None).result()

    def around(self, call: Any) -> Any:
        """The same callable, recorded."""
        if inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None)):  # noqa: B004

            @wraps(call, updated=())
            async def answer_later(*args: Any, **kwargs: Any) -> Any:
                return await self._awaited(call(*args, **kwargs), time.perf_counter(), args, kwargs)

            return answer_later

        # An object that is called has no name, and its attributes are no business of the function.
        @wraps(call, updated=())
        def answer(*args: Any, **kwargs: Any) -> Any:
            begun = time.perf_counter()
            try:
                found = call(*args, **kwargs)
            except BaseException as error:
                self._note(args, kwargs, [], begun, error)
                raise
            if inspect.isawaitable(found):
                return self._awaited(found, begun, args, kwargs)
            if not isinstance(found, Sequence | Mapping) and isinstance(found, Iterable):
                listed = list(found)  # An iterator can be read once.
                self._note(args, kwargs, listed, begun)
                return iter(listed)
            self._note(args, kwargs, found, begun)
            return found

        return answer

    async def _awaited(self, found: Awaitable[Any], begun: float, args: Any, kwargs: Any) -> Any:
        try:
            hits = await found
        except BaseException as error:
            self._note(args, kwargs, [], begun, error)
            raise
        self._note(args, kwargs, hits, begun)
        return hits

    def _note(self, args: Any, kwargs: Any, found: Any, begun: float, error: BaseException | None = None) -> None:
        """Have a call recorded. Raises nothing."""
        try:
            seconds = time.perf_counter() - begun
            given = args[0] if args else next(iter(kwargs.values()), "")
            is_texts = isinstance(given, list | tuple) and all(isinstance(one, str) for one in given)
            queries = list(given) if is_texts else [str(getattr(given, "query_str", given))]
            # A copy: the agent may change its list before it is recorded.
            self._behind.submit(self._record, queries, _listed(found), seconds, error)
        except Exception as failure:
            _log.warning("A call of a watched retriever is not recorded (%s).", loggable(failure))

    def _record(
        self, queries: Sequence[str], found: Sequence[Sequence[Any]], seconds: float, error: BaseException | None
    ) -> None:
        try:
            known = set(self._bank.utilities(self._recorder.run))
            kinds: set[SignalKind | None] = set()
            query, answers = "; ".join(queries), [[_usable(one, known, kinds) for one in hits] for hits in found]
            kind = self._kind or (next(iter(kinds)) if len(kinds) == 1 and not self._signal else None)
            vector = self._vectors([query])
            hits = [hit for answer in answers for hit in answer]
            new = self._remembered({name: text for name, _, text in hits if name not in known})
            task = f"query-{_digest(query)}"
            with (
                suppress(_Failed),
                self._recorder.step(query, embedding=vector[0] if vector else None, task=task) as s,
            ):
                for asked, answer in zip_longest(queries[: len(answers)], answers):
                    s.recalled(answer, kind, self._signal, asked if len(answers) > 1 else None, seconds=seconds)
                s.selected([*dict.fromkeys(name for name, _, _ in hits if name in known or name in new)])
                if error is not None:
                    raise type(type(error).__name__, (_Failed,), {})
        except Exception as failure:
            _log.warning("A call of a watched retriever is not recorded (%s).", loggable(failure))

    def _remembered(self, texts: Mapping[str, str]) -> set[str]:
        """Have the run know memories: those of the bank as they are, others by the texts that came with the hits.

        Returns the ids of these. An id that the bank has for another text is not one of them.
        """
        bank = self._bank
        there = [name for name in texts if bank.holds(name)]
        found: dict[str, tuple[str, str, Any]] = {}
        for name in there:
            one = bank.memory(name)
            if texts[name] in ("", one.intent, one.experience):
                found[name] = one.intent, one.experience, bank.embedding(name)
        new = {name: text for name, text in texts.items() if text and name not in there}
        vectors = self._vectors([*new.values()])
        found |= {name: (text, text, made) for (name, text), made in zip(new.items(), vectors, strict=False)}
        for name, (intent, experience, vector) in found.items():
            self._recorder.remember(intent, experience, vector, memory_id=name)
        return set(found)

    def _vectors(self, texts: Sequence[str]) -> list[Any]:
        """Embeddings of texts; none where the bank's embedder cannot be had."""
        if not self._is_looked_for:
            self._is_looked_for = True
            with suppress(MemRLError):
                if embeds_here(self._bank.embedder.name):
                    self._embedder = embedder_of(self._bank, load_preferences())
        if self._embedder is None or not texts:
            return []
        try:
            return [*embedded(self._embedder, texts)]
        except MemRLError:
            return []

    def _close(self) -> None:
        self._behind.shutdown()
        with suppress(Exception):
            self._bank.close()


def _listed(found: Any) -> list[list[Any]]:
    """The hits of an answer, a list for each query: of a list, a mapping such as {"results": [...]}, or columns."""
    if not isinstance(found, Mapping):
        return [[] if found is None or isinstance(found, str | bytes) else list(found)]
    if all(isinstance(value, int | float | None) for value in found.values()):
        return [list(found.items())]
    if not isinstance(ids := found.get("ids"), list | tuple):
        return [next((list(value) for value in found.values() if isinstance(value, list | tuple)), [])]
    columns = {one: found[many] for many, one in COLUMNS.items() if found.get(many) is not None}
    answers = zip(*columns.values(), strict=False) if all(isinstance(one, list) for one in ids) else [columns.values()]
    return [[dict(zip(columns, row, strict=False)) for row in zip(*lists, strict=False)] for lists in answers] or [[]]


def _usable(one: Any, known: set[str], kinds: set[SignalKind | None]) -> tuple[str, Any, str]:
    """The same as `_hit`, but a hit without an id, which the step then names, where there is none to be found."""
    try:
        return _hit(one, known, kinds)
    except Exception:
        return "", None, ""


def _hit(one: Any, known: set[str], kinds: set[SignalKind | None]) -> tuple[str, Any, str]:
    """A hit as (id, score, text); `kinds` gets what the name of its score says."""
    score: Any = None
    text = ""
    if isinstance(one, tuple | list) and len(one) in (2, 3):
        first, score, *rest = one
        name, own, text = _hit(first, known, set())
        return name, own if score is None else score, str(rest[0]) if rest else text
    if isinstance(one, str):
        if one in known or (one and not any(letter.isspace() for letter in one)):
            return one, None, ""
        return f"text-{_digest(one)}", None, one
    node = getattr(one, "node", one)
    fields = dict(one) if isinstance(one, Mapping) else {}
    about = dict(fields.get("metadata") or getattr(node, "metadata", None) or {})
    for holder in (fields, {"score": getattr(one, "score", None)}, about):
        for key, kind in SCORES.items():
            if score is None and isinstance(holder.get(key), int | float):
                score = holder[key]
                kinds.add(kind)
    content = getattr(node, "get_content", None)
    text = str(content()) if callable(content) else str(getattr(node, "page_content", "") or "")
    text = text or next((str(fields[key]) for key in TEXTS if isinstance(fields.get(key), str)), "")
    named = fields.get("id") or getattr(node, "node_id", None) or getattr(node, "id", None) or about.get("id")
    if not named and not text:
        raise InputError(f"A {type(one).__name__} is no hit: it has neither an id nor a text.")
    return str(named or f"text-{_digest(text)}"), score, text


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=6).hexdigest()


def wait_for_watched() -> None:
    """Wait until all calls of watched retrievers that have ended are recorded."""
    for watcher in tuple(_watchers):
        watcher.wait()


_watchers: weakref.WeakSet[_Watcher] = weakref.WeakSet()
