"""Defines what the catalog's tables are made of: rows, units, ways to combine series, and names of subjects.

A row says: these families (the first one present counts: a renamed family is the same number twice), of which series
(`keep`), grouped by what (`key`), combined how, are this quantity in this unit. Rows of one column add to the same cell
of a subject, so SGLang's six queues are six rows of `requests_waiting`.

A subject's name is what the response calls it. Where that is more than a person would write (a database, a virtual
host, an account), the rest is added only if two subjects would else have one name. A namespace always is part of it:
what a tenant calls its queues must not rename those of another.

Worked example: `SeriesRow(REQUESTS_WAITING, ("vllm:num_requests_waiting",), label("model_name"))` turns the series
`{engine="0",model_name="m"} 3` and `{engine="1",model_name="m"} 4` into 7 for `Queue("m")`. If one of the two is NaN,
the sum is NaN: unknown is never zero. `shortest` of the keys `("/", "jobs")`, `("/", "mail")` and `("test", "mail")` is
`Queue("jobs")`, `Queue("//mail")` and `Queue("test/mail")`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import TypeAlias

from exporter.model import Floats, Queue, Subject

Labels: TypeAlias = Mapping[str, str]
Key: TypeAlias = tuple[str, ...]
Columns: TypeAlias = dict[str, Floats]
Keep: TypeAlias = Callable[[Sequence[Labels]], list[int]]  # of a group's series, the indices of those that count
Subjects: TypeAlias = Callable[[Sequence[Key]], Sequence[Subject | None]]
Finish: TypeAlias = Callable[[Columns, tuple[Subject, ...]], tuple[Columns, tuple[Subject, ...]]]


class Combine(Enum):
    """How the series of one cell become one number. NaN: a series without a valid value."""

    SUM = "sum"  # NaN if any part is
    MEAN = "mean"  # NaN if any part is
    MIN = "min"  # NaN if any part is
    COPY = "copy"  # the same measurement several times: the largest valid copy
    SAME = "same"  # copies, or parts of a whole that is missing: the value if all agree, else NaN


@dataclass(frozen=True, slots=True)
class Unit:
    """Converts a response's unit to ours: dropped outside low..high (its unit), divided by `per`, then capped.

    per: how many of the response's units make one of ours: 100 for percent, 1000 for mJ, 2**-20 for MiB. Dividing keeps
         57 % at 0.57, where times 0.01 makes it 0.5700000000000001.
    """

    per: float = 1.0
    low: float = 0.0
    high: float = inf
    cap: float = inf


# Requests at one moment, and cumulative counts. The bounds only catch marks and garbage: no queue has 10**12 requests.
COUNT = Unit(high=1e12)
COUNTER = Unit(high=1e18)
# Ratios measured over slightly different intervals overshoot: SM_ACTIVE 1.294 occurred (NVIDIA/DCGM#152).
RATIO = Unit(high=1.5, cap=1.0)
BYTES = Unit(high=1e15)
BYTES_PER_SECOND = Unit(high=1e13)  # NVLink 5 has 1.8e12 both ways
WATTS = Unit(high=10_000.0)
JOULES = Unit(high=1e12)
FLAG = Unit(high=1.0)
PERCENT = Unit(per=100.0, high=100.0)  # GPU_UTIL glitches of 1,000 to 4,294,967,295 occurred (NVIDIA/DCGM#199)
CELSIUS = Unit(high=200.0)


def label(*names: str) -> Callable[[Labels], Key]:
    """Group by the first of these labels that is there; "" if none is."""

    def key(labels: Labels) -> Key:
        return (next((labels[name] for name in names if name in labels), ""),)

    return key


def whole_response(_: Labels) -> Key:
    """One key for a response with gauges that name no model."""
    return ("",)


def every(members: Sequence[Labels]) -> list[int]:
    return list(range(len(members)))


def matching(matches: Callable[[Labels], bool]) -> Keep:
    """Keep the series with labels for which `matches` is true."""
    return lambda members: [index for index, labels in enumerate(members) if matches(labels)]


def where(**wanted: str) -> Keep:
    """Keep the series with these labels. To Prometheus an absent label and an empty one are the same."""
    return matching(lambda labels: all(labels.get(name, "") == value for name, value in wanted.items()))


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """One row of a table. `column`: a Quantity, or a name that the kind's `finish` uses.

    part: series of one part are copies of one measurement, of which the largest counts; the parts are combined. None:
          each series is a part.
    """

    column: str
    names: tuple[str, ...]
    key: Callable[[Labels], Key]
    combine: Combine = Combine.SUM
    unit: Unit = COUNT
    keep: Keep = every
    part: Callable[[Labels], Key] | None = None


UNNAMED = "default"  # the queue of a response that names none: it serves one model and does not name it


def one_queue_each(keys: Sequence[Key]) -> list[Subject | None]:
    return [Queue(key[0] or UNNAMED) for key in keys]


def shortest(keys: Sequence[Key]) -> list[Subject | None]:
    """The last part of a key alone where no other ends like it, else all of its parts."""
    last = [key[-1] for key in keys]
    return [
        Queue("/".join(filter(None, key)) if last.count(name) > 1 else name or UNNAMED)
        for key, name in zip(keys, last, strict=True)
    ]


def in_full(keys: Sequence[Key]) -> list[Subject | None]:
    """All parts of a key, of which the first is the Kubernetes namespace: `Queue("ai/chat")`."""
    return [Queue("/".join(filter(None, key)) or UNNAMED) for key in keys]


def labels_of(*names: str | tuple[str, ...]) -> Callable[[Labels], Key]:
    """Group by all of these labels; of alternatives by the first that is not empty."""
    choices = [(name,) if isinstance(name, str) else name for name in names]

    def key(labels: Labels) -> Key:
        return tuple(next((labels[name] for name in choice if labels.get(name)), "") for choice in choices)

    return key


def unchanged(columns: Columns, subjects: tuple[Subject, ...]) -> tuple[Columns, tuple[Subject, ...]]:
    return columns, subjects
