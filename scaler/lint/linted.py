"""The objects of one run -> what every rule says of them, less what is silenced. Pure.

Worked example: of a ScaledObject whose annotation silences TG004 with a reason, its `fallback` is not spoken of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..config.model import Config
from ..config.problem import Problem
from ..config.remark import problem
from . import finders
from .manifests import remarks_on
from .seen import see
from .silence import silenced
from .things import Thing


class Linted(NamedTuple):
    """problems: in the order of the objects. passed_over: objects that no rule reads."""

    problems: list[Problem]
    passed_over: int


def linted(
    things: Sequence[Thing], config: Config | None, now: float | None, ignored: frozenset[str], *, live: bool = False
) -> Linted:
    """config: what they will meet; None: not known, defaults are assumed. now: POSIX seconds; None: what is over is not
    looked for. ignored: ids of rules that nobody wants to hear of.
    """
    seen = see(things, config, live=live)
    problems: list[Problem] = []
    passed_over = 0
    for thing in things:
        words = remarks_on(thing.value, config, now)
        passed_over += words is None and not thing.kind
        silent, wrong = silenced(thing)
        said = (*(words or ()), *finders.remarks(thing, seen), *wrong)
        problems += [
            problem(thing.value, thing.file, one)
            for one in said
            if one.rule is None or one.rule.id not in silent | ignored
        ]
    return Linted(problems, passed_over)
