"""The vocabulary in which the catalog's tables are written. It knows how numbers combine and nothing of any vendor.

A table is a tuple of `Row`s. A row says: these families (the first one present wins: a renamed family is the same
number twice), of which series (`keep`), grouped by what (`key`), combined how, are this quantity in this unit.
Rows of one column add to the same cell of a subject, so SGLang's five queues are five rows of `requests_waiting`.

Worked example: `Row(REQUESTS_WAITING, ("vllm:num_requests_waiting",), key=label("model_name"), combine=SUM)` turns two
series `{engine="0",model_name="m"} 3` and `{engine="1",model_name="m"} 4` into 7 for `Queue("m")`. If one of the two
is NaN the sum is NaN: unknown is never zero. If its line is not there at all, it is not part of the sum.

How things on a page get the names people use in a configuration. It knows labels and nothing of any vendor.

A name is what the page calls the thing; where a page says more than a person would (a database, a virtual host, an
account), the rest is added only where two things on the page would else have one name.

Worked example: `shortest` of the keys `("/", "jobs")`, `("/", "mail")` and `("test", "mail")` is `Queue("jobs")`,
`Queue("//mail")` and `Queue("test/mail")`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import TypeAlias

from exporter.model import Floats, Quantity, Queue, Subject

Labels: TypeAlias = Mapping[str, str]
Key: TypeAlias = tuple[str, ...]
Columns: TypeAlias = dict[str, Floats]
Finish: TypeAlias = Callable[[Columns, tuple[Subject, ...]], tuple[Columns, tuple[Subject, ...]]]


class Combine(Enum):
    """How the series of one cell become one number. NaN below is a series that is there and cannot be believed."""

    SUM = "sum"  # NaN if any part is
    MEAN = "mean"  # NaN if any part is
    MIN = "min"  # NaN if any part is
    COPY = "copy"  # the same measurement printed several times: any copy that can be believed
    SAME = "same"  # copies, or else parts of a whole that is not on the page: the value if all agree, else NaN


@dataclass(frozen=True, slots=True)
class Unit:
    """From the page's unit to ours: dropped outside low..high (the page's unit), divided by `per`, then capped.

    per: how many of the page's units make one of ours: 100 for percent, 1000 for mJ, 2**-20 for MiB. Dividing keeps
         57 % at 0.57, where times 0.01 makes it 0.5700000000000001.
    """

    per: float = 1.0
    low: float = 0.0
    high: float = inf
    cap: float = inf


# Requests at one moment, and cumulative counts. The bounds only catch marks and garbage: nobody queues 10**12 requests.
COUNT = Unit(high=1e12)
COUNTER = Unit(high=1e18)
# Ratios measured over slightly different intervals overshoot: SM_ACTIVE 1.294 was seen (NVIDIA/DCGM#152).
RATIO = Unit(high=1.5, cap=1.0)
BYTES = Unit(high=1e15)
WATTS = Unit(high=10_000.0)
JOULES = Unit(high=1e12)
FLAG = Unit(high=1.0)


def label(*names: str) -> Callable[[Labels], Key]:
    """Group by the first of these labels that is there; "" if none is."""

    def key(labels: Labels) -> Key:
        return (next((labels[name] for name in names if name in labels), ""),)

    return key


def every(members: Sequence[Labels]) -> list[int]:
    return list(range(len(members)))


def where(**wanted: str) -> Callable[[Sequence[Labels]], list[int]]:
    """Keep the series with these labels. To Prometheus an absent label and an empty one are the same."""

    def keep(members: Sequence[Labels]) -> list[int]:
        return [
            position
            for position, labels in enumerate(members)
            if all(labels.get(name, "") == value for name, value in wanted.items())
        ]

    return keep


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """One line of a table. `column`: a Quantity, or a name of the kind's own that its `finish` uses up.

    part: series of one part are copies of one measurement, of which the largest counts; the parts are combined. None:
          each series is a part.
    """

    column: str
    names: tuple[str, ...]
    key: Callable[[Labels], Key]
    combine: Combine = Combine.SUM
    unit: Unit = COUNT
    keep: Callable[[Sequence[Labels]], list[int]] = every
    part: Callable[[Labels], Key] | None = None


@dataclass(frozen=True, slots=True)
class KindTable:
    """What a kind's page says.

    subjects: the subject of each key found on a page, in their order; None leaves one out.
    finish:   the last arithmetic between columns, once a page.
    feeds:    which quantity a column of the kind's own becomes there.
    """

    rows: tuple[SeriesRow, ...]
    subjects: Callable[[Sequence[Key]], Sequence[Subject | None]]
    finish: Finish
    feeds: Mapping[str, Quantity] = field(default_factory=dict)


UNNAMED = "default"  # the queue of a page that names none: it serves one model and does not say which


def one_queue_each(keys: Sequence[Key]) -> list[Subject | None]:
    return [Queue(key[0] or UNNAMED) for key in keys]


def shortest(keys: Sequence[Key]) -> list[Subject | None]:
    """The last part of a key alone where no other ends like it, else all of its parts."""
    last = [key[-1] for key in keys]
    return [
        Queue("/".join(filter(None, key)) if last.count(name) > 1 else name or UNNAMED)
        for key, name in zip(keys, last, strict=True)
    ]


def labels_of(*names: str | tuple[str, ...]) -> Callable[[Labels], Key]:
    """Group by all of these labels; of several in one place by the first that says something."""
    places = [(name,) if isinstance(name, str) else name for name in names]

    def key(labels: Labels) -> Key:
        return tuple(next((labels[name] for name in place if labels.get(name)), "") for place in places)

    return key


def as_it_is(columns: Columns, subjects: tuple[Subject, ...]) -> tuple[Columns, tuple[Subject, ...]]:
    return columns, subjects
