"""What a check of values against each other has to say: a key to change, why, and what that rests on."""

from __future__ import annotations

from typing import NamedTuple

from .problem import Loc
from .rules import Rule, Severity


class Finding(NamedTuple):
    """rests_on: further keys without which it means nothing. got: the value, as written by default; "" has none. rule:
    None for what makes no configuration.
    """

    key: Loc
    message: str
    rests_on: tuple[Loc, ...] = ()
    got: str = ""
    severity: Severity = "error"
    rule: Rule | None = None
