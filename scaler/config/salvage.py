"""Validates all that can be validated: what is wrong in one place must not hide what is wrong in another.

pydantic reports every bad field at once, but gives no value to check neighbours against as long as one of them is
bad. So bad values are taken out and their defaults put in their place, until the rest stands; what was taken out is
named, so that nobody draws conclusions from a default that nobody wrote.

Worked example: with `scrape: {interval: fast, timeout: 9s}` the interval is lost and reported; the timeout is kept,
and not compared to the default interval, because ("scrape", "interval") is among the lost.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from .model import Config
from .problem import Loc
from .words import CONSEQUENCES, MISSING, NOT_A_MAPPING

# Bad value, then missing in its place, then its list taken out: a fourth round would be a bug, not a configuration.
_ROUNDS = 4
_ANY_NAME = "unknown"


def salvage(document: dict[str, Any]) -> tuple[Config | None, list[ErrorDetails], set[Loc]]:
    """What stands of the document (which is consumed), every error of the whole of it, and what was lost."""
    errors: list[ErrorDetails] = []
    lost: set[Loc] = set()
    for _ in range(_ROUNDS):
        try:
            return Config.model_validate(document), errors, lost
        except ValidationError as error:
            details = [
                one for one in error.errors(include_url=False, include_input=True) if one["type"] not in CONSEQUENCES
            ]
        errors = errors or details
        for one in details:
            lost.add(_take_out(document, one))
    return None, errors, lost


def is_lost(loc: Loc, lost: set[Loc]) -> bool:
    return any(loc[:length] in lost for length in range(len(loc) + 1))


def _take_out(document: dict[str, Any], error: ErrorDetails) -> Loc:
    *way, last = error["loc"]
    holders: list[Any] = [document]
    for part in way:
        try:
            holders.append(holders[-1][part])
        except (KeyError, IndexError, TypeError):
            return error["loc"]  # gone already, with a neighbour
    holder = holders[-1]
    if error["type"] == MISSING:
        holder[last] = _ANY_NAME  # every field that must be given is a name
    elif isinstance(holder, dict):
        holder.pop(last, None)
    elif error["type"] == NOT_A_MAPPING:
        holder[last] = {}
    else:
        del holders[-2][way[-1]]
        return tuple(way)
    return error["loc"]
