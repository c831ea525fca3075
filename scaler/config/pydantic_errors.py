"""pydantic's errors in our words: a bound that a person can act on, never a validator's name.

It knows which keys each part of the configuration has, to say which one was meant. Places and the offending value
are added by `load`.

Worked example: an `extra_forbidden` at `("scrape", "intervall")` is "unknown key; did you mean interval?".

Validates all that can be validated: what is wrong in one place must not hide what is wrong in another.

pydantic reports every bad field at once, but gives no value to check neighbours against as long as one of them is
bad. So bad values are taken out and their defaults put in their place, until the rest stands; what was taken out is
named, so that nobody draws conclusions from a default that nobody wrote.

Worked example: with `scrape: {interval: fast, timeout: 9s}` the interval is lost and reported; the timeout is kept,
and not compared to the default interval, because ("scrape", "interval") is among the lost.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from .endpoint import Section
from .errors import Loc
from .model import Config
from .scalars import REFUSED, did_you_mean

# A default that depends on a neighbour which is itself wrong: the neighbour's error says all there is to say.
CONSEQUENCES = frozenset({"default_factory_not_called"})
UNKNOWN_KEY = "extra_forbidden"
MISSING = "missing"
EMPTY = "too_short"
NOT_A_MAPPING = "model_type"

_SENTENCES = {
    NOT_A_MAPPING: "must be a mapping of keys to values",
    "tuple_type": "must be a list",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must be a path such as /metrics",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a number with an end",
    "bool_type": "must be true or false",
    EMPTY: "must have at least one item",
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be below {lt:g}",
    "less_than_equal": "must be at most {le:g}",
}


def sentence(error: ErrorDetails, root: type[BaseModel] = Config) -> str:
    """What would be right. `root`: what the document is read by."""
    kind, ctx = error["type"], error.get("ctx", {})
    if kind == REFUSED:
        return str(ctx["sentence"])
    if kind == MISSING:
        return "must be given"
    if kind == UNKNOWN_KEY:
        return _unknown(error["loc"], root)
    if kind == "literal_error":
        return f"must be one of {ctx['expected'].replace(chr(39), '').replace(' or ', ', ')}"
    if kind == "string_type" and isinstance(error["input"], int | float):
        return "must be text: put it in quotes"
    return _SENTENCES[kind].format(**ctx)


def section_at(loc: Loc, root: type[BaseModel] = Config) -> type[BaseModel] | None:
    """The part of the model that a mapping at `loc` is read by."""
    section: type[BaseModel] | None = root
    for part in loc:
        if isinstance(part, int):
            continue  # an item of a list is read by what the list holds
        field = section.model_fields.get(part) if section else None
        section = next(sections_in(field.annotation), None) if field else None
    return section


def sections_in(annotation: Any) -> Any:
    """The sections that a field's type speaks of: of `tuple[Endpoint, ...] | None` it is `Endpoint`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from sections_in(argument)


def meant_by(loc: Loc, root: type[BaseModel] = Config) -> Loc | None:
    """The key that somebody who wrote the unknown key `loc` will have meant."""
    meant = did_you_mean(str(loc[-1]).lower().replace("-", "_"), _known(loc, root))
    return (*loc[:-1], meant) if meant else None


def _unknown(loc: Loc, root: type[BaseModel]) -> str:
    meant = meant_by(loc, root)
    return (
        f"unknown key; did you mean {meant[-1]}?"
        if meant
        else f"unknown key; known here: {', '.join(_known(loc, root))}"
    )


def _known(loc: Loc, root: type[BaseModel]) -> list[str]:
    section = section_at(loc[:-1], root)
    return list(section.model_fields) if section else []


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
