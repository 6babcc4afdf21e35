"""A step of a memory-based agent, phase by phase, and what is needed to run one."""

from memrl_core.agent.agent import NO_VECTOR, Agent, Episode, step_seed

__all__ = ("NO_VECTOR", "Agent", "Episode", "step_seed")
