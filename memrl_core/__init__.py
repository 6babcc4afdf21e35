"""The core of MemRL Inspector: everything that works without a screen.

The names below are what programs outside import; each is loaded when it is first asked for, because `memrl` has to
start quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memrl_core.agent import Agent
    from memrl_core.agent.memory import Memory
    from memrl_core.agent.recorder import Recorder
    from memrl_core.agent.watch import watch
    from memrl_core.bank import MemoryBank as Bank
    from memrl_core.environments.base import Environment
    from memrl_core.policies.base import Policy
    from memrl_core.records import Memory as MemoryRecord

    open_bank = Bank.open

__version__ = "0.2.0"
__all__ = [
    "Agent",
    "Bank",
    "Environment",
    "Memory",
    "MemoryRecord",
    "Policy",
    "Recorder",
    "__version__",
    "open_bank",
    "watch",
]

_HOMES = {
    "Agent": ("memrl_core.agent", "Agent"),
    "Bank": ("memrl_core.bank", "MemoryBank"),
    "Environment": ("memrl_core.environments.base", "Environment"),
    "Memory": ("memrl_core.agent.memory", "Memory"),
    "MemoryRecord": ("memrl_core.records", "Memory"),
    "Policy": ("memrl_core.policies.base", "Policy"),
    "Recorder": ("memrl_core.agent.recorder", "Recorder"),
    "watch": ("memrl_core.agent.watch", "watch"),
}


def __getattr__(name: str) -> Any:
    if name == "open_bank":
        return __getattr__("Bank").open
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, original = _HOMES[name]
    return getattr(import_module(module), original)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
