"""How any Python agent writes ordinary traces into a bank."""

from memrl_core.recorder.recorder import Recorder

__all__ = ["Recorder"]
