"""What is wrong with a configuration, said so that a person can go there and fix it.

A `Problem` is one line of a report. It knows a place, a key and a sentence; it does not know YAML, pydantic or how
the sentence was found.

Worked example: `str(Problem("config.yaml", 14, 13, "tick", "must be at most 1m, got 2m"))` is
`config.yaml:14:13: tick: must be at most 1m, got 2m`, which editors and terminals turn into a link; found by a rule, it
has its severity and id in front of the key: `config.yaml:3:5: warning TG001: workloads.0.replicas.min: ...`.

What a check of values against each other has to say: a key to change, why, and what that rests on.

What is wrong with the words of a trigger or of annotations, said so that the tenant who wrote them can mend it.

Worked example: `str(BadWord("metadata.keep_warm", "must be a duration such as 500ms, 5s, 2m or 1h30m", "soon"))` is
`metadata.keep_warm: must be a duration such as 500ms, 5s, 2m or 1h30m, got 'soon'`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeAlias

from .rules import Rule, Severity

Loc: TypeAlias = tuple[int | str, ...]  # ("workloads", 0, "name")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing a person should change.

    line, column: counted from 1; None where the file as a whole is meant.
    key:          dotted, as in `workloads.0.name`; "" where no key is meant.
    message:      the bound, then the value that broke it.
    severity:     a warning does not keep the configuration from being used; an info is no more than a hint.
    rule:         the id of the rule that found it, "TG012"; None: what Tidegate itself would refuse, which nobody can
                  silence.
    """

    file: str
    line: int | None
    column: int | None
    key: str
    message: str
    severity: Severity = "error"
    rule: str | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}:{self.column}"
        label = " ".join(
            filter(None, ("" if self.severity == "error" and self.rule is None else self.severity, self.rule))
        )
        return ": ".join(filter(None, (place, label, self.key, self.message)))

    def to_document(self) -> dict[str, Any]:
        """Plain JSON-able data, for `tidegate check -o json`."""
        return asdict(self)


class ConfigErrors(Exception):  # noqa: N818  it is a list of them, and says so
    """A configuration that cannot be used: all its problems, in the order of the file, warnings among them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


def dotted(loc: Loc) -> str:
    return ".".join(str(part) for part in loc)


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
