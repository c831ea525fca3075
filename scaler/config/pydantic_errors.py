"""Turns pydantic's errors into sentences, and validates as much of a document as possible.

pydantic reports every bad field at once, but returns no value while one field is bad, so values could not be checked
against each other. `salvage` removes bad values until the rest is valid, and returns what it removed: no check may
rely on a default that replaces a removed value.

Worked example: with `scrape: {interval: fast, timeout: 9s}` the interval is lost and reported. The timeout is kept and
not compared to the default interval, because ("scrape", "interval") is among the lost.
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

UNKNOWN_KEY = "extra_forbidden"
MISSING = "missing"
_EMPTY = "too_short"
_NOT_A_MAPPING = "model_type"
# The default of a field depends on another field, which is bad and has an error of its own.
_CONSEQUENCE = "default_factory_not_called"

_SENTENCES = {
    MISSING: "must be given",
    _NOT_A_MAPPING: "must be a mapping of keys to values",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping of names to values",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must be a path such as /metrics",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    _EMPTY: "must have at least one item",
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be below {lt:g}",
    "less_than_equal": "must be at most {le:g}",
}
# A bad value is removed; then a required key is missing and gets a placeholder; then its list item is removed. A fourth
# round would be a bug.
_ROUNDS = 4
# Placeholders for required keys, so that the keys beside them can be checked; all other required keys are names.
_PLACEHOLDERS: dict[int | str, Any] = {
    "url": "http://unknown",
    "endpoint": "http://unknown",
    "page": {"url": "http://unknown"},
    "namespaces": ["unknown"],
    "start": "0 0 * * *",
    "lease": "unknown.unknown",
}
_PLACEHOLDER_NAME = "unknown"

AnySection = TypeVar("AnySection", bound=Section)


def sentence(error: ErrorDetails, root: type[BaseModel] = Config) -> str:
    """The valid values or keys. root: the model of the document."""
    kind, ctx = error["type"], error.get("ctx", {})
    if kind == REFUSED:
        return str(ctx["sentence"])
    if kind == UNKNOWN_KEY:
        intended = intended_key(error["loc"], root)
        hint = f"did you mean {intended[-1]}?" if intended else f"known here: {', '.join(_keys(error['loc'], root))}"
        return f"unknown key; {hint}"
    if kind == "literal_error":
        return f"must be one of {ctx['expected'].replace(chr(39), '').replace(' or ', ', ')}"
    if kind == "string_type" and isinstance(error["input"], int | float):
        return "must be text: put it in quotes"
    return _SENTENCES[kind].format(**ctx)


def sections_in(annotation: Any) -> Any:
    """The sections in a field's type: `Endpoint` in `tuple[Endpoint, ...] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from sections_in(argument)


def intended_key(loc: Loc, root: type[BaseModel] = Config) -> Loc | None:
    """The key that resembles the unknown key `loc`."""
    meant = did_you_mean(str(loc[-1]).lower().replace("-", "_"), _keys(loc, root))
    return (*loc[:-1], meant) if meant else None


def _keys(loc: Loc, root: type[BaseModel]) -> list[str]:
    """The valid keys of the mapping that holds `loc`."""
    section: type[BaseModel] | None = root
    for part in loc[:-1]:
        if isinstance(part, int):
            continue  # the items of a list have the list's section
        field = section.model_fields.get(part) if section else None
        section = next(sections_in(field.annotation), None) if field else None
    return list(section.model_fields) if section else []


def salvage(
    document: dict[str, Any], section: type[AnySection]
) -> tuple[AnySection | None, list[ErrorDetails], set[Loc]]:
    """The valid part of a document, all errors, and the keys that were lost. Consumes the document."""
    errors: list[ErrorDetails] = []
    lost: set[Loc] = set()
    for _ in range(_ROUNDS):
        try:
            return section.model_validate(document), errors, lost
        except ValidationError as error:
            details = _causes(error.errors(include_url=False, include_input=True))
        errors = errors or details
        for each in details:
            lost.add(_repair(document, each))
    return None, errors, lost


def is_lost(loc: Loc, lost: set[Loc]) -> bool:
    """Whether the key, or one that contains it, is lost."""
    return any(loc[:length] in lost for length in range(len(loc) + 1))


def _causes(errors: list[ErrorDetails]) -> list[ErrorDetails]:
    """Without errors that only follow from others: a list that lost its only bad item is not empty too."""
    holders = {each["loc"][:-1] for each in errors}
    return [
        each
        for each in errors
        if each["type"] != _CONSEQUENCE and not (each["type"] == _EMPTY and each["loc"] in holders)
    ]


def _repair(document: dict[str, Any], error: ErrorDetails) -> Loc:
    """Removes the bad value, or adds a placeholder for a missing one. Returns the key that is lost."""
    *path, last = error["loc"]
    holders: list[Any] = [document]
    for part in path:
        try:
            holders.append(holders[-1][part])
        except (KeyError, IndexError, TypeError):
            return error["loc"]  # removed already, with its mapping
    holder = holders[-1]
    if error["type"] == MISSING:
        holder[last] = copy.deepcopy(_PLACEHOLDERS.get(last, _PLACEHOLDER_NAME))
    elif isinstance(holder, dict):
        holder.pop(last, None)
    elif error["type"] == _NOT_A_MAPPING:
        holder[last] = {}
    else:
        del holders[-2][path[-1]]
        return tuple(path)
    return error["loc"]
