"""pydantic's errors in our words: a bound that a person can act on, never a validator's name.

It knows which keys each part of the configuration has, to say which one was meant. Places and the offending value
are added by `load`.

Worked example: an `extra_forbidden` at `("scrape", "intervall")` is "unknown key; did you mean interval?".
"""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from .kinds import did_you_mean
from .model import Config
from .problem import Loc
from .scalars import REFUSED

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
