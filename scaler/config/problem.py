"""What is wrong with a configuration, said so that a person can go there and fix it.

A `Problem` is one line of a report. It knows a place, a key and a sentence; it does not know YAML, pydantic or how
the sentence was found.

Worked example: `str(Problem("config.yaml", 14, 13, "tick", "must be at most 1m, got 2m"))` is
`config.yaml:14:13: tick: must be at most 1m, got 2m`, which editors and terminals turn into a link; found by a rule, it
has its severity and id in front of the key: `config.yaml:3:5: warning TG001: workloads.0.replicas.min: ...`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from .rules import Severity

__all__ = ["ConfigErrors", "Loc", "Problem", "Severity", "dotted"]

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
