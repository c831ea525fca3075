"""One entry of the decision log: what `policy.step` took in and gave out for one workload, at one moment. Pure.

An entry is a row of numbers in the log and a value of the policy's own columns, one slot each, outside of it. Nothing
is rounded on the way, so `step` answers again what it answered then.

Worked example: `flat(given, places)` of two workloads has the shape (2, WIDTH); `unflat` of one of its rows has
`readings.waiting` of shape (1,), with the very number that the kernel was given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from exporter.model import Floats

from ..plan import Plan
from ..policy import Decided, Memory, Readings, Signal, Spec, Specs, Standing, Verdicts
from ..slots import Mask, Rows
from ..totals import Totals

Ints: TypeAlias = NDArray[np.int64]


class Aside(NamedTuple):
    """What decided nothing by itself, and tells how the readings came to be; every column has shape (rows,).

    latest:   shape (rows, len(Signal)): the signals before they were smoothed.
    imputed:  pods that did not answer were taken to be like the others.
    asked:    replicas that its group asked for; 0 is none.
    sleeping: pods whose engines are in sleep mode; NaN unknown.
    gpus_held: GPUs that its running pods asked for; NaN unknown.
    gpus_shown, gpus_utilised, gpus_silent, gpus_lost, gpus_parts: as in `totals.GpusSeen`.
    probe_period: seconds of the regular requests that are taken for probes; NaN where none are.
    regular_until: POSIX seconds until which regular requests count, whatever their period; NaN where they do not.
    """

    latest: Floats
    imputed: Mask
    asked: Floats
    sleeping: Floats
    gpus_held: Floats
    gpus_shown: Floats
    gpus_utilised: Floats
    gpus_silent: Floats
    gpus_lost: Floats
    gpus_parts: Floats
    probe_period: Floats
    regular_until: Floats

    @classmethod
    def of(cls, totals: Totals, imputed: Mask, asked: Floats, probe_period: Floats, regular_until: Floats) -> Aside:
        gpus = totals.gpus
        seen = (gpus.shown, gpus.utilised, gpus.silent, gpus.lost, gpus.parts)
        probes = (probe_period, regular_until)
        return cls(totals.latest, imputed, asked, totals.sleeping, totals.gpus_held, *seen, *probes)

    @classmethod
    def blank(cls, rows: int) -> Aside:
        """Nothing is known."""
        return cls(
            np.full((rows, len(Signal)), np.nan),
            np.zeros(rows, dtype=np.bool_),
            np.zeros(rows),
            *np.full((9, rows), np.nan),
        )


class When(NamedTuple):
    """at: POSIX seconds, the `now` of that decision. raise_only: a page was the occasion, not the passage of time."""

    at: Floats
    raise_only: Mask


class Given(NamedTuple):
    """What is noted of some workloads; every column of every part has a slot for each.

    memory: before the decision. verdicts: what it came to.
    """

    when: When
    readings: Readings
    standing: Standing
    memory: Memory
    verdicts: Verdicts
    aside: Aside

    @classmethod
    def of(cls, decided: Decided, before: Memory, aside: Aside, now: float, *, raise_only: bool) -> Given:
        """now: POSIX seconds."""
        rows = len(decided.asked)
        when = When(np.full(rows, now), np.full(rows, raise_only))
        return cls(when, decided.readings, decided.standing, before, decided.verdicts, aside)


def blank(rows: int) -> Given:
    """Of which only the shapes and kinds count."""
    when = When(np.full(rows, np.nan), np.zeros(rows, dtype=np.bool_))
    standing = Standing.plain(Specs.stack([Spec(0, 1, ())] * rows))
    return Given(when, Readings.unknown(rows), standing, Memory.blank(rows), Verdicts.blank(rows), Aside.blank(rows))


# What charts show, by part and name: it comes first in a row of the log, side by side, because charts read all rows.
CHARTED = (
    ("when", "at"),
    ("readings", "waiting"),
    ("readings", "running"),
    ("readings", "held"),
    ("verdicts", "demand"),
    ("verdicts", "replicas"),
    ("readings", "wanted"),
    ("aside", "latest"),
    ("verdicts", "reason"),
)
# Where each column begins in a row of the log, by part and name.
_TEMPLATE = blank(1)
_OTHERS = ((part, name) for part, columns in _TEMPLATE._asdict().items() for name in columns._fields)
_NAMES = (*CHARTED, *(column for column in _OTHERS if column not in CHARTED))
_WIDTHS = [getattr(getattr(_TEMPLATE, part), name).size for part, name in _NAMES]
_ENDS = np.cumsum(_WIDTHS).tolist()
WIDTH: int = _ENDS[-1]
CHARTED_WIDTH: int = _ENDS[len(CHARTED) - 1]
_SLICES = {name: slice(end - width, end) for name, end, width in zip(_NAMES, _ENDS, _WIDTHS, strict=True)}


def place(part: str, name: str) -> int:
    """The number of a column's first place in a row of the log: `place("readings", "waiting")`."""
    return int(_SLICES[part, name].start)


def flat(given: Given, places: Rows) -> Floats:
    """Some of the workloads as rows of the log, shape (len(places), WIDTH)."""
    out = np.empty((len(places), WIDTH))
    for (part, name), where in _SLICES.items():
        column = getattr(getattr(given, part), name)[places]
        out[:, where] = column if column.ndim > 1 else column[:, None]
    return out


def unflat(row: Floats) -> Given:
    """The reverse, for one row of the log: every column has one slot. row: shape (WIDTH,)."""
    return Given(*(_part(row, name, part) for name, part in _TEMPLATE._asdict().items()))


def _part(row: Floats, part: str, like: Any) -> Any:
    columns = ((row[_SLICES[part, name]], column) for name, column in like._asdict().items())
    return type(like)(*(cells.astype(column.dtype).reshape(column.shape) for cells, column in columns))


@dataclass(frozen=True, slots=True)
class Entry:
    """One decision about one workload, with the plan that held then."""

    plan: Plan
    given: Given

    @property
    def at(self) -> float:
        """POSIX seconds."""
        return float(self.given.when.at[0])
