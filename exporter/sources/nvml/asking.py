"""One question to NVML at a time, and what a refusal of it costs.

It knows the three costs and keeps the reasons; what is asked is somebody else's. Unknown is None, never 0.

Worked example: with `told = []`, `ask(library, "power", lambda: library.nvmlDeviceGetPowerUsage(gpu), told)` is 71234,
or None where the GPU has no sensor; a driver that says UNKNOWN gives None too and adds a reason to `told`; a GPU that
fell off the bus raises Lost, and a driver that was unloaded raises Shut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from .library import QUIET, Cost, Library, NvmlCode, code_of, cost_of, words

Given = TypeVar("Given")

# Lists are asked for twice, first for their length: one that grew in between is asked for again.
TRIES = 3


class Lost(Exception):  # noqa: N818 - it is the GPU that is
    """A GPU does not answer; its neighbours may."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: {words(code)}")
        self.code = code


class Shut(Exception):  # noqa: N818 - it is the driver that is
    """Nothing answers any more: the driver or the library is gone."""

    def __init__(self, code: int) -> None:
        super().__init__(words(code))
        self.code = code


def ask(library: Library, what: str, question: Callable[[], Given], told: list[str]) -> Given | None:
    """The answer, or None if there is none to be had. Raises Lost and Shut.

    what: the noun that a reason begins with. told: reasons are added; a GPU without the field is no reason.
    """
    try:
        return question()
    except library.NVMLError as error:
        code = code_of(error)
        match cost_of(code):
            case Cost.READING:
                raise Shut(code) from error
            case Cost.GPU:
                raise Lost(what, code) from error
        if code not in QUIET:
            told.append(f"{what}: {words(code)}")
        return None


def needed(library: Library, what: str, question: Callable[[], Given]) -> Given:
    """The answer to something without which the GPU cannot be spoken of. Raises Lost, also for a refusal, and Shut."""
    try:
        return question()
    except library.NVMLError as error:
        code = code_of(error)
        if cost_of(code) is Cost.READING:
            raise Shut(code) from error
        raise Lost(what, code) from error


def growing(library: Library, question: Callable[[], Given]) -> Callable[[], Given]:
    """The same question, asked again while its answer outgrows the room that was made for it."""

    def again() -> Given:
        for _ in range(TRIES - 1):
            try:
                return question()
            except library.NVMLError as error:
                if code_of(error) != NvmlCode.INSUFFICIENT_SIZE:
                    raise
        return question()

    return again
