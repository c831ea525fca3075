"""What is wrong with the words of a trigger or of annotations, said so that the tenant who wrote them can mend it.

Worked example: `str(BadWord("metadata.keep_warm", "must be a duration such as 500ms, 5s, 2m or 1h30m", "soon"))` is
`metadata.keep_warm: must be a duration such as 500ms, 5s, 2m or 1h30m, got 'soon'`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .rules import Rule, Severity

_PLAIN_KEY = re.compile(r"[\w./-]{1,80}", re.ASCII)
_SHOWN_CHARACTERS = 80


class BadWord(NamedTuple):
    """key: where it stands: `metadata.…` of the trigger, `tidegate.dev/…` of annotations, or `spec.…` of the object.

    bound:    the rule.
    value:    what was given, where that broke it; None where nothing was.
    severity: a warning does not keep the workload from being made.
    rule:     of `tidegate check`; None for what makes no workload.
    """

    key: str
    bound: str
    value: str | None = None
    severity: Severity = "error"
    rule: Rule | None = None

    def __str__(self) -> str:
        key = self.key if is_plain(self.key) else shown(self.key)
        return f"{key}: {self.bound}" if self.value is None else f"{key}: {self.bound}, got {shown(self.value)}"


class BadWords(ValueError):  # noqa: N818  named for whose fault it is
    """Words that make no workload: all that is wrong with them, in the order in which they stand."""

    def __init__(self, problems: tuple[BadWord, ...]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = problems


def is_plain(key: str) -> bool:
    """A key as people write them, that nobody could mistake for another."""
    return _PLAIN_KEY.fullmatch(key) is not None


def shown(value: str) -> str:
    """A stranger's text, quoted, cut, and in ASCII, where no letter can pass for its look-alike."""
    quoted = ascii(value[: _SHOWN_CHARACTERS + 1])
    return quoted if len(quoted) <= _SHOWN_CHARACTERS else f"{quoted[:_SHOWN_CHARACTERS]}... ({len(value)} characters)"
