"""Validates all that can be validated: what is wrong in one place must not hide what is wrong in another.

pydantic reports every bad field at once, but gives no value to check neighbours against as long as one of them is
bad. So bad values are taken out and their defaults put in their place, until the rest stands; what was taken out is
named, so that nobody draws conclusions from a default that nobody wrote.

Worked example: with `scrape: {interval: fast, timeout: 9s}` the interval is lost and reported; the timeout is kept,
and not compared to the default interval, because ("scrape", "interval") is among the lost.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from .access import Section
from .problem import Loc
from .words import CONSEQUENCES, EMPTY, MISSING, NOT_A_MAPPING

# Bad value, then missing in its place, then its list taken out: a fourth round would be a bug, not a configuration.
_ROUNDS = 4
# Something for each field that must be given, so that its neighbours can be looked at. Others are names.
_ANYTHING: dict[int | str, Any] = {
    "url": "http://unknown",
    "page": {"url": "http://unknown"},
    "namespaces": ["unknown"],
    "start": "0 0 * * *",
    "lease": "unknown.unknown",
}
_ANY_NAME = "unknown"

AnySection = TypeVar("AnySection", bound=Section)


def salvage(
    document: dict[str, Any], section: type[AnySection]
) -> tuple[AnySection | None, list[ErrorDetails], set[Loc]]:
    """What stands of the document (which is consumed), every error of the whole of it, and what was lost."""
    errors: list[ErrorDetails] = []
    lost: set[Loc] = set()
    for _ in range(_ROUNDS):
        try:
            return section.model_validate(document), errors, lost
        except ValidationError as error:
            details = _causes(error.errors(include_url=False, include_input=True))
        errors = errors or details
        for one in details:
            lost.add(_take_out(document, one))
    return None, errors, lost


def _causes(errors: list[ErrorDetails]) -> list[ErrorDetails]:
    """Without those that only follow from others: a list whose one item is bad is not empty too."""
    holders = {one["loc"][:-1] for one in errors}
    return [
        one
        for one in errors
        if one["type"] not in CONSEQUENCES and not (one["type"] == EMPTY and one["loc"] in holders)
    ]


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
        holder[last] = copy.deepcopy(_ANYTHING.get(last, _ANY_NAME))
    elif isinstance(holder, dict):
        holder.pop(last, None)
    elif error["type"] == NOT_A_MAPPING:
        holder[last] = {}
    else:
        del holders[-2][way[-1]]
        return tuple(way)
    return error["loc"]
