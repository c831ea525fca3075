"""Turns findings about objects into problems with a position, and reads which rules an object silences. Pure.

The annotation `tidegate.dev/check-ignore` silences rules for an object, and `--ignore` for a run. The annotation needs
a reason, and only rules can be silenced: a problem without a rule would be rejected by Tidegate.

Worked example: `tidegate.dev/check-ignore: "TG061 because the gateway drains; TG063 because it loads in 1 s"` silences
two rules for that object, and `"TG061"` alone is the error TG092.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from scaler.config.errors import Finding, Loc, Problem, TriggerProblem, dotted, shown
from scaler.config.rules import IGNORED_WITHOUT_REASON, RULES
from scaler.config.trigger import ANNOTATION, CHECK_IGNORE
from scaler.config.yaml import DocumentValue

_AT: Loc = ("metadata", "annotations", ANNOTATION + CHECK_IGNORE)
_ENTRY = re.compile(r"(?P<ids>\w+(?:\s*,\s*\w+)*)(?:\s+because(?:\s+(?P<reason>\S.*))?)?", re.DOTALL)


class UnknownRule(ValueError):  # noqa: N818  a bad argument
    """`args[0]` is the id."""


def from_trigger_problem(problem: TriggerProblem, key: Loc) -> Finding:
    """The problem of a trigger or of annotations, at a key of the document."""
    return Finding(key, problem.bound, problem.value, problem.rule, is_warning=problem.severity == "warning")


def locate(document: DocumentValue, file: str, finding: Finding) -> Problem:
    """The position of the value, of its key if no value is at fault, or of the nearest mapping if it is missing."""
    exact = document.at(*finding.key)
    paths = (finding.key[:length] for length in range(len(finding.key), -1, -1))
    nearest = next(value for path in paths if (value := document.at(*path)) is not None)
    mark = exact.key if exact is not None and finding.got is None else nearest.mark
    message = finding.message
    if finding.got is not None:
        message += f", got {shown(finding.got)}" if exact else f", got {finding.got} (the default)"
    rule = None if finding.rule is None else finding.rule.id
    return Problem(file, mark.line, mark.column, dotted(finding.key), message, finding.severity, rule)


def read_ignored(options: Sequence[str]) -> frozenset[str]:
    """The ids in `--ignore` options, which may have several with commas. Raises UnknownRule."""
    ids = [each.strip() for option in options for each in option.split(",")]
    for each in ids:
        if each not in RULES:
            raise UnknownRule(each)
    return frozenset(ids)


def read_silenced(value: DocumentValue) -> tuple[frozenset[str], list[Finding]]:
    """The rules that an object's annotation silences, and what is wrong with the annotation."""
    annotation = value.at(*_AT)
    if annotation is None:
        return frozenset(), []
    silenced: set[str] = set()
    faults = list(_read_entries(annotation.text or "", silenced))
    return frozenset(silenced), faults


def _read_entries(text: str, silenced: set[str]) -> Iterator[Finding]:
    """Adds the ids of valid entries to `silenced`; yields the faults of the others."""
    for entry in text.split(";"):
        match = _ENTRY.fullmatch(entry.strip())
        if match is None:
            message = 'must be rules and a reason, such as "TG061 because the gateway drains"'
            yield Finding(_AT, message, text, IGNORED_WITHOUT_REASON)
            continue
        for name in (each.strip() for each in match["ids"].split(",")):
            if name not in RULES:
                message = f"{name} is no rule: `tidegate check --rules` lists them"
                yield Finding(_AT, message, rule=IGNORED_WITHOUT_REASON)
            elif match["reason"] is None:
                yield Finding(_AT, f'{name} has no reason: write "{name} because ..."', rule=IGNORED_WITHOUT_REASON)
            else:
                silenced.add(name)
