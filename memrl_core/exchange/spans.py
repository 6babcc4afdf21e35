"""Steps sent over OTLP HTTP to any tool that reads OpenTelemetry traces; this needs the extra `otel`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError
from memrl_core.exchange.step_spans import spans_of

STEPS_AT_ONCE = 20

Progress = Callable[[float], None]


def send_steps(
    bank: MemoryBank, run: str, steps: Sequence[int], endpoint: str, on_progress: Progress | None = None
) -> int:
    """Send finished steps to an OTLP HTTP endpoint and return how many; `on_progress` hears the fraction done.

    `endpoint` is a whole address such as "http://localhost:6006/v1/traces"; one without a path gets "/v1/traces".
    Raises `InputError` when the run has no such step, the extra is missing, or the endpoint refuses or does not answer.
    """
    address = _address(endpoint)
    try:
        from memrl_core.exchange.otlp import Line
    except ImportError:
        raise InputError(
            "Sending traces needs OpenTelemetry: install it with `pip install 'memrl-inspector[otel]'`. "
            "Nothing was sent."
        ) from None
    if missing := sorted(set(steps) - {row.step for row in bank.step_rows(run)}):
        raise InputError(f"Run {run} has no step {missing[0]}. Nothing was sent.")
    line = Line(address)
    sent = 0
    for chunk in (steps[start : start + STEPS_AT_ONCE] for start in range(0, len(steps), STEPS_AT_ONCE)):
        if problem := line.send(run, [span for step in chunk for span in spans_of(bank, bank.trace(run, step))]):
            raise InputError(
                f"{address} {problem}. {sent:,} of {len(steps):,} steps were sent; they can be sent again under the "
                "same ids."
            )
        sent += len(chunk)
        if on_progress is not None:
            on_progress(sent / len(steps))
    return sent


def _address(endpoint: str) -> str:
    try:
        parts = urlsplit(endpoint.strip())
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise InputError(
            f"“{endpoint[:200]}” is not an address that takes traces, such as http://localhost:6006/v1/traces. "
            "Nothing was sent."
        )
    return parts._replace(path="/v1/traces").geturl() if parts.path in ("", "/") else parts.geturl()
