"""Defines what a check reports: a finding about one key, and problems with their position in a file or an object.

A `Finding` names a key and a bound. The loader adds file, line and column, which makes a `Problem`. A tenant's trigger
or annotations have no file: their problem is a `TriggerProblem`.

Worked example: `str(Problem("config.yaml", 14, 13, "tick", "must be at most 1m, got 2m"))` is
`config.yaml:14:13: tick: must be at most 1m, got 2m`, which editors and terminals turn into a link. A problem of a rule
has severity and id before the key: `config.yaml:3:5: warning TG001: workloads.0.replicas.min: ...`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeAlias

from .rules import Rule, Severity

Loc: TypeAlias = tuple[int | str, ...]  # ("workloads", 0, "name")

_PLAIN_KEY = re.compile(r"[\w./-]{1,80}", re.ASCII)
_SHOWN_CHARACTERS = 80


class Finding(NamedTuple):
    """One fault in values that are valid one by one.

    got:      the offending value as the file would write it; None if no value is at fault.
    rule:     None for what Tidegate, KEDA or Kubernetes would reject, which no rule silences.
    rests_on: further keys; the finding is dropped if one of them could not be read.
    is_warning: whether a finding without a rule is only a warning.
    """

    key: Loc
    message: str
    got: str | None = None
    rule: Rule | None = None
    rests_on: tuple[Loc, ...] = ()
    is_warning: bool = False

    @property
    def severity(self) -> Severity:
        if self.rule is not None:
            return self.rule.severity
        return "warning" if self.is_warning else "error"


@dataclass(frozen=True, slots=True)
class Problem:
    """One line of a report.

    line, column: counted from 1; None for the file as a whole.
    key:          dotted, as in `workloads.0.name`; "" if no key is meant.
    message:      the bound, then the value that broke it.
    severity:     only an error rejects the configuration.
    rule:         id of the rule, such as "TG012"; None for what no rule silences.
    """

    file: str
    line: int | None
    column: int | None
    key: str
    message: str
    severity: Severity = "error"
    rule: str | None = None

    def __str__(self) -> str:
        position = self.file if self.line is None else f"{self.file}:{self.line}:{self.column}"
        label = f"{self.severity} {self.rule}" if self.rule else "" if self.severity == "error" else self.severity
        return ": ".join(filter(None, (position, label, self.key, self.message)))

    def to_document(self) -> dict[str, Any]:
        """Plain JSON-able data, for `tidegate check -o json`."""
        return asdict(self)


class ConfigErrors(Exception):  # noqa: N818  a list of errors
    """All problems of a configuration that cannot be used, warnings included, in the order of the file."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class TriggerProblem(NamedTuple):
    """One problem of a trigger or of annotations.

    key:      `metadata.…` of the trigger, `tidegate.dev/…` of annotations, or `spec.…` of the object.
    bound:    what would be valid.
    value:    the value that broke the bound; None if there is none.
    severity: only an error defines no workload.
    rule:     of `tidegate check`; None for what defines no workload.

    Worked example: `TriggerProblem("metadata.keep_warm", "must be a duration such as 500ms, 5s, 2m or 1h30m", "soon")`
    is `metadata.keep_warm: must be a duration such as 500ms, 5s, 2m or 1h30m, got 'soon'`.
    """

    key: str
    bound: str
    value: str | None = None
    severity: Severity = "error"
    rule: Rule | None = None

    def __str__(self) -> str:
        key = self.key if is_plain(self.key) else shown(self.key)
        return f"{key}: {self.bound}" if self.value is None else f"{key}: {self.bound}, got {shown(self.value)}"


class TriggerErrors(ValueError):  # noqa: N818  a list of errors
    """All problems of a trigger or of annotations that define no workload, in the order of their keys."""

    def __init__(self, problems: tuple[TriggerProblem, ...]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = problems


def dotted(loc: Loc) -> str:
    return ".".join(str(part) for part in loc)


def is_plain(key: str) -> bool:
    """Whether a key has only the characters of ordinary keys, so that it can be shown without quotes."""
    return _PLAIN_KEY.fullmatch(key) is not None


def shown(value: str) -> str:
    """Untrusted text, quoted, cut to 80 characters, and in ASCII, where no letter can pass for its look-alike."""
    quoted = ascii(value[: _SHOWN_CHARACTERS + 1])
    return quoted if len(quoted) <= _SHOWN_CHARACTERS else f"{quoted[:_SHOWN_CHARACTERS]}... ({len(value)} characters)"
