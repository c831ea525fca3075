"""What a manifest is told, and where in it: a `Remark` names a path, `problem` finds the line."""

from __future__ import annotations

from typing import NamedTuple

from .bad_words import BadWord, shown
from .documents import DocumentValue
from .problem import Loc, Problem, dotted
from .rules import Rule, Severity


class Remark(NamedTuple):
    """loc: a path in the document, which need not be there. got: a value to show; None for none. rule: None for what
    Tidegate, KEDA or Kubernetes would refuse.
    """

    loc: Loc
    message: str
    severity: Severity = "error"
    got: str | None = None
    rule: Rule | None = None


def of_word(word: BadWord, loc: Loc) -> Remark:
    """What is said of a word, at the place where it stands in this document."""
    return Remark(loc, word.bound, word.severity, word.value, word.rule)


def problem(document: DocumentValue, file: str, remark: Remark) -> Problem:
    """The line to go to: that of the value, of the key where no value is at fault, or of what lacks it."""
    there = document.at(*remark.loc)
    near = next(found for length in range(len(remark.loc), -1, -1) if (found := document.at(*remark.loc[:length])))
    mark = there.key if there is not None and remark.got is None else near.mark
    got = "" if remark.got is None else f", got {shown(remark.got)}" if there else f", got {remark.got} (the default)"
    rule = None if remark.rule is None else remark.rule.id
    return Problem(file, mark.line, mark.column, dotted(remark.loc), remark.message + got, remark.severity, rule)
