"""Parses label selectors in the one-line form of a query. Pure.

It accepts what Kubernetes' parser accepts except `>` and `<`: no label here is a number. Values may contain a "/",
because the label of a workload's further trigger does.

Worked example: `parse("workload in (chat, code), !mode")` matches `{"workload": "chat"}` and not
`{"workload": "chat", "mode": "observe"}`. As in Kubernetes `workload != chat` also matches an object without the label.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from scaler.config.errors import shown

_KEY = r"[A-Za-z0-9](?:[\w./-]*[A-Za-z0-9])?"
_VALUE = r"[A-Za-z0-9](?:[\w./-]*[A-Za-z0-9])?|"
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)", re.ASCII)
_EQUALITY = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})", re.ASCII)
_EXISTENCE = re.compile(rf"(!?)\s*({_KEY})", re.ASCII)
# aiohttp accepts a request line of 8,190 bytes. About 60 of the longest names (63 characters) fit into a selector.
LONGEST = 4096  # characters


class BadSelector(ValueError):  # noqa: N818 - named after the side at fault
    """Not a selector; the message has the invalid part."""


class Operator(Enum):
    IN = auto()
    NOT_IN = auto()
    EXISTS = auto()
    ABSENT = auto()


class Requirement(NamedTuple):
    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case Operator.IN:
                return labels.get(self.key) in self.values
            case Operator.NOT_IN:
                return labels.get(self.key) not in self.values
            case Operator.EXISTS:
                return self.key in labels
            case Operator.ABSENT:
                return self.key not in labels


Selector: TypeAlias = tuple[Requirement, ...]


def parse(text: str) -> Selector:
    """An empty text selects everything. Linear in the length of the text. Raises BadSelector."""
    if len(text) > LONGEST:
        raise BadSelector(f"labelSelector: must be at most {LONGEST} characters long, got {len(text)}: {shown(text)}")
    if not text.strip():
        return ()
    return tuple(_requirement(part.strip()) for part in _parts(text))


def matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    return all(requirement.matches(labels) for requirement in selector)


def _parts(text: str) -> Iterator[str]:
    """The parts between commas outside of parentheses, in one pass."""
    start, inside = 0, False
    for position, character in enumerate(text):
        if character == "," and not inside:
            yield text[start:position]
            start = position + 1
        elif character in "()":
            inside = character == "("
    yield text[start:]


def _requirement(part: str) -> Requirement:
    if found := _SET.fullmatch(part):
        values = [value.strip() for value in found[3].split(",")]
        if all(re.fullmatch(_VALUE, value, re.ASCII) for value in values):
            return Requirement(found[1], Operator.IN if found[2] == "in" else Operator.NOT_IN, frozenset(values))
    elif found := _EQUALITY.fullmatch(part):
        return Requirement(found[1], Operator.NOT_IN if found[2] == "!=" else Operator.IN, frozenset([found[3]]))
    elif found := _EXISTENCE.fullmatch(part):
        return Requirement(found[2], Operator.ABSENT if found[1] else Operator.EXISTS)
    raise BadSelector(
        f"labelSelector: must be requirements such as `workload=chat`, `workload in (chat,code)` or `!workload`, "
        f"separated by commas, got {shown(part)}"
    )
