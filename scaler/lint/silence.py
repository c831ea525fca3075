"""What somebody has decided to live with: `tidegate.dev/check-ignore` on an object, and `--ignore` for a run. Pure.

A reason is required, since nobody remembers one; a rule that does not exist silences nothing and is an error. What has
no rule cannot be silenced: Tidegate would refuse it.

Worked example: `tidegate.dev/check-ignore: "TG061 because the gateway drains; TG063 because it loads in 1 s"` silences
two rules for that object, and `"TG061"` alone is the error TG092.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..config.problem import Loc
from ..config.remark import Remark
from ..config.trigger import ANNOTATION, CHECK_IGNORE
from ..rules import IGNORED_WITHOUT_REASON, RULES
from .seen import said
from .things import Thing

_AT: Loc = ("metadata", "annotations", ANNOTATION + CHECK_IGNORE)
_ONE = re.compile(r"(?P<ids>\w+(?:\s*,\s*\w+)*)(?:\s+because(?:\s+(?P<why>\S.*))?)?", re.DOTALL)


class UnknownRule(ValueError):  # noqa: N818  it is what was asked for
    """`args[0]` is the id."""


def known(ids: Sequence[str]) -> frozenset[str]:
    """The ids of `--ignore`, as they are; several may stand in one, with commas. Raises UnknownRule."""
    given = [one.strip() for each in ids for one in each.split(",")]
    for one in given:
        if one not in RULES:
            raise UnknownRule(one)
    return frozenset(given)


def silenced(thing: Thing) -> tuple[frozenset[str], list[Remark]]:
    """The rules that an object's annotation silences, and what is wrong with the annotation."""
    annotation = thing.value.at(*_AT)
    if annotation is None:
        return frozenset(), []
    found: set[str] = set()
    wrong = list(_read(annotation.text or "", found))
    return frozenset(found), wrong


def _read(text: str, found: set[str]) -> Iterator[Remark]:
    for part in (one.strip() for one in text.split(";")):
        match = _ONE.fullmatch(part)
        if match is None:
            message = 'must be rules and a reason, such as "TG061 because the gateway drains"'
            yield said(IGNORED_WITHOUT_REASON, _AT, message, text)
            continue
        for name in (one.strip() for one in match["ids"].split(",")):
            if name not in RULES:
                yield said(IGNORED_WITHOUT_REASON, _AT, f"{name} is no rule: `tidegate check --rules` lists them")
            elif match["why"] is None:
                yield said(IGNORED_WITHOUT_REASON, _AT, f'{name} has no reason: write "{name} because ..."')
            else:
                found.add(name)
