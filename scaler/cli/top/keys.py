"""Holds what a user of `tidegate top` chose, and changes it by keys. Pure.

Worked example: `press(Choice(), "j", rows)` selects the first row, and `press(choice, "q", rows)` is None: it ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

Row: TypeAlias = Mapping[str, Any]
Key: TypeAlias = tuple[str, str, str]

UP, DOWN, ENTER, ESCAPE, BACKSPACE = "up", "down", "enter", "escape", "backspace"
PAGE_UP, PAGE_DOWN, HOME, END, HANG_UP = "page up", "page down", "home", "end", "hang-up"
_NAMED = {
    "\x1b[A": UP, "\x1bOA": UP, "\x1b[B": DOWN, "\x1bOB": DOWN, "\x1b[5~": PAGE_UP, "\x1b[6~": PAGE_DOWN,
    "\x1b[H": HOME, "\x1bOH": HOME, "\x1b[1~": HOME, "\x1b[F": END, "\x1bOF": END, "\x1b[4~": END,
    "\r": ENTER, "\n": ENTER, "\x1b": ESCAPE, "\x7f": BACKSPACE, "\b": BACKSPACE,
}  # fmt: skip
_MOVES = {"j": 1, DOWN: 1, "k": -1, UP: -1}
_ONE_KEY = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Z])|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Choice:
    """What is shown.

    page:     the rows, the help, or the explanation of the selected row. scroll: first line of that.
    selected: of a row; None before the first move. filter: text that a row must have. typing: keys go to it.
    """

    page: Literal["rows", "help", "explain"] = "rows"
    selected: Key | None = None
    sort: str = "severity"
    filter: str = ""
    typing: bool = False
    scroll: int = 0


START = Choice()


def key(row: Row) -> Key:
    return (row["namespace"], row["name"], row.get("trigger", ""))


def _most_first(name: str) -> Callable[[Row], tuple[bool, float]]:
    """By a number of the row; unknown ones last."""
    return lambda row: (row[name] is None, -(row[name] or 0.0))


SEVERITY = "severity"  # the order of the server: by severity, then by load
SORTS: Mapping[str, Callable[[Row], Any]] = {
    "name": key,
    "requests": _most_first("load"),
    "replicas": _most_first("published"),
    "GPU": _most_first("gpu"),
}
_ORDERS = (SEVERITY, *SORTS)


def split(typed: str) -> list[str]:
    """The keys of one read: names of special keys, and letters. An unknown escape sequence is no key."""
    if not typed:
        return [HANG_UP]
    found = [_NAMED.get(each, each) for each in _ONE_KEY.findall(typed)]
    return [each for each in found if not each.startswith("\x1b")]


def matching(workloads: Sequence[Row], choice: Choice) -> list[Row]:
    """The rows that match the filter, in the chosen order. Unknown numbers come last."""
    wanted = choice.filter.lower()
    found = [row for row in workloads if wanted in _text(row)]
    return found if choice.sort == SEVERITY else sorted(found, key=SORTS[choice.sort])


def press(choice: Choice, pressed: str, rows: Sequence[Row], page_size: int = 10) -> Choice | None:
    """The choice after a key; None if it ends the program. rows: as shown, of `matching`."""
    if pressed == HANG_UP:
        return None
    if choice.typing:
        return _typed(choice, pressed)
    if pressed in ("q", "Q"):
        return None
    if choice.page == "help":
        return replace(choice, page="rows")
    if choice.page == "explain":
        return _explained(choice, pressed, page_size)
    return _rows(choice, pressed, rows, page_size)


def _typed(choice: Choice, pressed: str) -> Choice:
    match pressed:
        case "escape":
            return replace(choice, filter="", typing=False)
        case "enter":
            return replace(choice, typing=False)
        case "backspace":
            return replace(choice, filter=choice.filter[:-1])
    return replace(choice, filter=choice.filter + pressed) if len(pressed) == 1 and pressed.isprintable() else choice


def _explained(choice: Choice, pressed: str, page_size: int) -> Choice:
    if pressed in (ESCAPE, ENTER, BACKSPACE):
        return replace(choice, page="rows", scroll=0)
    step = {**_MOVES, PAGE_DOWN: page_size, " ": page_size, PAGE_UP: -page_size}.get(pressed, 0)
    return replace(choice, scroll=0 if pressed in ("g", HOME) else max(0, choice.scroll + step))


def _rows(choice: Choice, pressed: str, rows: Sequence[Row], page_size: int) -> Choice | None:
    match pressed:
        case "escape":
            return replace(choice, filter="") if choice.filter else None
        case "/":
            return replace(choice, typing=True)
        case "?":
            return replace(choice, page="help")
        case "s":
            return replace(choice, sort=_ORDERS[(_ORDERS.index(choice.sort) + 1) % len(_ORDERS)])
        case "enter":
            is_there = index_of(rows, choice.selected) is not None
            return replace(choice, page="explain", scroll=0) if is_there else _select(choice, rows, 0)
    at = index_of(rows, choice.selected)
    jumps = {"g": 0, HOME: 0, "G": len(rows) - 1, END: len(rows) - 1}
    steps = {**_MOVES, PAGE_DOWN: page_size, PAGE_UP: -page_size}
    if pressed in jumps:
        return _select(choice, rows, jumps[pressed])
    if pressed in steps:
        return _select(choice, rows, 0 if at is None else at + steps[pressed])
    return choice


def index_of(rows: Sequence[Row], selected: Key | None) -> int | None:
    """The index of the selected row; None if it is not among them."""
    return next((index for index, row in enumerate(rows) if key(row) == selected), None)


def _select(choice: Choice, rows: Sequence[Row], index: int) -> Choice:
    return replace(choice, selected=key(rows[max(0, min(index, len(rows) - 1))])) if rows else choice


def _text(row: Row) -> str:
    return f"{'/'.join(part for part in key(row) if part)} {row['state']} {row['reason']} {row['why']}".lower()
