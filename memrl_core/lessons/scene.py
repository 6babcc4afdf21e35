"""What every scene of a lesson has in common: settings from the lesson's file, inputs of a person, and named values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from memrl_core.bank import MemoryBank
from memrl_core.errors import InputError

Value = bool | float | str
Inputs = Mapping[str, Any]
Model = TypeVar("Model", bound=BaseModel)


class Scene(BaseModel):
    """A part of the program that a lesson shows, with the settings a lesson may choose.

    `VALUES` maps each name that a check of the lesson may ask for to its type: bool, float or str.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    VALUES: ClassVar[Mapping[str, type]]

    @abstractmethod
    def observe(self, bank: MemoryBank, inputs: Inputs) -> Mapping[str, Value]:
        """The values as they stand after `inputs`; what is not there yet has no entry. Changes nothing.

        Raises `InputError` for inputs that cannot be those of this scene, `BankError` for what the bank lacks.
        """


def read_inputs(model: type[Model], inputs: Inputs) -> Model:
    """What a person did in a scene, checked. Raises `InputError` when the stored state is of another scene."""
    try:
        return model.model_validate(dict(inputs))
    except ValidationError:
        raise InputError(
            "What you did in this lesson was stored in a form that it cannot use. Start this lesson again; the other "
            "lessons are as they were."
        ) from None
