"""Decides which quantities of a response are complete. Pure: time is an argument.

A quantity of a target is complete if every series of it that the target has exposed since its process started is in the
response once, with a valid value. Each series that is not makes a `Gap`, and the quantity becomes a lower bound.

What a response does to a series that the target has exposed before:

| in the response                                                     | the series becomes                    |
|---------------------------------------------------------------------|---------------------------------------|
| once, with a valid value                                            | complete                              |
| without a valid value (NaN, out of range), even from the first on   | incomplete: invalid                   |
| more than once, with different values                               | incomplete: conflicting               |
| not at all                                                          | incomplete: missing                   |
| not at all, and the process has restarted                           | forgotten                             |
| not at all, nor any series with its labels, for long enough         | forgotten: adapter or engine unloaded |
| not at all, even from the first on, but its pair (`Kind.paired`)    | incomplete: missing                   |

A restart shows in `process_start_time_seconds`, or in a counter that falls where that series is not exposed. A series
is unloaded only if series of other families shared its labels before and none does now, and no line was dropped. If
none ever did, its last value must also have been 0: exporters delete the series of a queue that is gone, never that of
an engine alone. A GPU is not forgotten by these rules: it belongs to its pod for as long as the pod lives.

Missing series outlive this process: `judge` returns their records in `Samples.missing`, and `restore` loads them in
another process. Such a series is one that the target has exposed before, until the table closes its gap.

Worked example: `vllm:num_requests_waiting` is 0 for engine 0 and 30 for engine 1, then the line of engine 1 is
missing. The quantity is NaN in the samples, with `Gap(row=0, quantity=requests_waiting, at_least=0.0, reason=missing,
series='vllm:num_requests_waiting{engine="1"}')`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf, isnan, nan
from typing import TypeAlias

import numpy as np

from exporter.model import Floats, Gap, GapReason, Gpu, MissingSeries, Quantity, Samples, Subject
from exporter.textformat import Layout, Page

from .missing_series import MAX_STORED, Identity, Key
from .missing_series import read as read_identity
from .missing_series import write as write_identity
from .plan import Mask, ReadPlan, Wanted

# A series without any other series of its labels counts as unloaded after so long: a minute (twelve scrapes at the
# default interval) if it had no work in hand, five minutes (the default hold) if it had, or if no other series ever
# shared its labels, as of a gateway's flow or a broker's queue that is deleted.
UNLOADED_AFTER_S = 60.0
UNLOADED_BUSY_AFTER_S = 300.0
# A GPU that was not in the responses for a day is forgotten, so that memory stays bounded.
GPU_FORGOTTEN_AFTER_S = 86_400.0
# Missing series remembered per target. More are only possible if a target invents labels; the oldest go first.
MAX_MISSING = 4096
# Of one response: label sets that are searched, each in one pass over the names and labels, and series checked.
MAX_LABEL_SETS = 64
MAX_CHECKED = 10_000
START_TIME = "process_start_time_seconds"
SAME_START_S = 1.0  # some exporters compute it from uptime, with a jitter of some 10 ms
# A stored start time that is further ahead is ignored: no later one would ever show a restart.
START_AHEAD_S = 7 * 86_400.0
# Counters stored beside the missing series of a target without a start time: one that has fallen shows a restart.
MAX_COUNTERS_STORED = 4
TEXT_LENGTH = 160  # characters of a series in messages

GPU_ACTIVITY = frozenset({Quantity.GPU_ENGINE_ACTIVE, Quantity.GPU_UTILIZATION})
COUNTERS = frozenset(
    {Quantity.REQUESTS_FINISHED, Quantity.REQUESTS_FAILED, Quantity.TOKENS_PROMPT, Quantity.TOKENS_GENERATED}
)

_Found: TypeAlias = tuple[int, Quantity, GapReason, str, float]  # a gap without its bound


@dataclass(slots=True)
class _Series:
    """A series that the target has exposed.

    labels: as `name="value"`, UTF-8; None if a value holds characters that are escaped in a response.
    value:  the last valid value; NaN if there was none.
    at:     POSIX seconds of the last response that had it.
    had_mates: series of other families had all its labels when it was there last.
    has_mates: … and in the last response.
    gone_since: POSIX seconds since when none has; NaN while some do.
    identity: its record in a checkpoint: empty before it is written, None if it cannot be.
    """

    subject: Subject
    quantity: Quantity
    name: str
    text: str
    labels: tuple[bytes, ...] | None
    value: float
    at: float
    had_mates: bool = False
    has_mates: bool = True
    gone_since: float = nan
    identity: bytes | None = b""


class Completeness:
    """Follows the series of one target from response to response."""

    def __init__(self) -> None:
        self._layout: Layout | None = None
        self._keys: list[Key] = []  # of plan.wanted, in its order
        self._present: dict[Key, _Series] = {}
        self._missing: dict[Key, _Series] = {}
        self._values: Floats = np.empty(0)
        self._starts: list[int] = []  # series of the layout that give the start time of the process
        self._started_at = nan
        self._restarted = False
        self._judged_at = nan
        self._restored: tuple[MissingSeries, ...] = ()  # not merged yet
        self._watched_since = inf  # POSIX seconds of the first response
        self._saw_restart = False
        self._subjects: tuple[Subject, ...] = ()  # of the last samples with missing subjects, …
        self._extended: tuple[Subject, ...] = ()  # … and the same with the missing ones

    def judge(self, plan: ReadPlan, page: Page, samples: Samples, received_at: float) -> Samples:
        """Returns the samples with their gaps: incomplete quantities of queues are NaN, missing GPUs have a row.

        received_at: POSIX seconds.
        """
        if self._restored:
            self._merge_restored(received_at)
        self._watched_since = min(self._watched_since, received_at)
        values = page.values[plan.wanted_series]
        valid = (values >= plan.wanted_low) & (values <= plan.wanted_high)
        self._note_start(page)
        if page.layout is not self._layout:
            self._follow(plan, page)
        fell = valid & (values < self._values)
        if self._restarted or (isnan(self._started_at) and bool(fell.any()) and self._is_counter(fell)):
            self._forget_queues()
        self._restarted, self._judged_at = False, received_at
        self._values = np.where(valid, values, self._values)
        if self._missing:
            self._expire(page, received_at)
        whole = not (self._missing or page.broken or page.conflicts or plan.unpaired)
        if whole and bool(valid.all()):
            return samples
        return self._with_gaps(plan, page, samples, values, valid)

    def restore(self, missing: Iterable[MissingSeries]) -> None:
        """These are missing from the next response on. The event loop may call this while a thread judges."""
        self._restored = tuple({each.identity: each for each in (*self._restored, *missing)}.values())[:MAX_MISSING]

    def missing(self) -> tuple[MissingSeries, ...]:
        """Returns what `restore` needs, at most MAX_STORED: those that had work in hand first, then the oldest."""
        missing = sorted(self._missing.items(), key=lambda item: item[1].value == 0.0)
        if not missing:
            return self._restored[:MAX_STORED]
        records = (self._record(key, series, series.value, series.at) for key, series in missing)
        stored = tuple(islice((each for each in records if each is not None), MAX_STORED - MAX_COUNTERS_STORED))
        return (*stored, *self._counters()) if stored and isnan(self._started_at) else stored

    def _counters(self) -> Iterator[MissingSeries]:
        """The largest counters of the last response: one that falls after a restart of this process shows a restart."""
        values = zip(self._keys, self._values.tolist(), strict=True)
        counters = {key: value for key, value in values if self._present[key].quantity in COUNTERS and value > 0.0}
        for key in sorted(counters, key=lambda each: -counters[each])[:MAX_COUNTERS_STORED]:
            record = self._record(key, self._present[key], counters[key], self._judged_at)
            if record is not None:
                yield record

    def _record(self, key: Key, series: _Series, value: float, at: float) -> MissingSeries | None:
        if series.identity == b"":
            text = series.text if isinstance(series.subject, Gpu) else ""
            series.identity = write_identity(Identity(key, series.subject, series.quantity, text))
        if series.identity is None:
            return None
        pods = series.subject.pods if isinstance(series.subject, Gpu) else ()
        return MissingSeries(series.identity, pods, value, at, series.gone_since, series.had_mates, self._started_at)

    def _merge_restored(self, received_at: float) -> None:
        """Adds restored series to the missing ones.

        Not if this object has followed the target since before the gap, or the process since its start.
        """
        records, self._restored = self._restored, ()
        added = []
        for record in records:
            identity = read_identity(record.identity)
            if identity is None or not record.at < self._watched_since:
                continue
            is_queue = not isinstance(identity.subject, Gpu)
            start = record.process_start if 0.0 < record.process_start < received_at + START_AHEAD_S else nan
            if is_queue and (self._saw_restart or self._started_at - start > SAME_START_S):
                continue
            if isnan(self._started_at):
                self._started_at = start
            if identity.key not in self._present and len(self._missing) < MAX_MISSING:
                series = self._missing.setdefault(identity.key, _restored(identity, record))
                if series.had_mates:
                    added.append(series)
        if self._layout is not None:
            for series, carried in zip(added, _carried(added, self._layout), strict=True):
                series.has_mates = carried

    def _note_start(self, page: Page) -> None:
        if page.layout is not self._layout:
            self._starts = page.layout.select({START_TIME})
        started_at = float(np.fmax.reduce(page.values[self._starts], initial=-np.inf)) if self._starts else nan
        if not 0.0 < started_at < inf:
            return
        self._restarted = started_at - self._started_at > SAME_START_S
        self._started_at = started_at

    def _follow(self, plan: ReadPlan, page: Page) -> None:
        """Switches to another layout: which series are new, which are missing."""
        for series, value in zip(self._present_in_order(), self._values.tolist(), strict=True):
            series.value = value
        old, old_layout, self._layout = self._present, self._layout, page.layout
        self._keys = [_key(plan, page.layout, wanted) for wanted in plan.wanted]
        self._present = {}
        for key, wanted in zip(self._keys, plan.wanted, strict=True):
            if key not in self._present:
                earlier = self._missing.pop(key, None) or old.pop(key, None)
                series = self._present[key] = earlier or _series(plan, page.layout, wanted)
                series.subject, series.gone_since = plan.subjects[wanted.row], nan
        self._values = np.array([series.value for series in self._present_in_order()])
        if old_layout is not None:
            for series in old.values():
                series.at = self._judged_at
            for series, carried in zip(old.values(), _carried(old.values(), old_layout), strict=True):
                series.had_mates = carried
            self._missing.update(old)
        for key in list(self._missing)[: max(0, len(self._missing) - MAX_MISSING)]:
            del self._missing[key]
        gone = [series for series in self._missing.values() if series.had_mates]
        for series, carried in zip(gone, _carried(gone, page.layout), strict=True):
            series.has_mates = carried

    def _present_in_order(self) -> list[_Series]:
        return [self._present[key] for key in self._keys]

    def _is_counter(self, chosen: Mask) -> bool:
        """Whether one of the chosen series is a counter. chosen: shape (wanted series of the layout,)."""
        return any(self._present[self._keys[index]].quantity in COUNTERS for index in np.flatnonzero(chosen).tolist())

    def _forget_queues(self) -> None:
        """After a restart of the process, forgets what its predecessor exposed. A GPU still belongs to its pod."""
        self._missing = {key: series for key, series in self._missing.items() if isinstance(series.subject, Gpu)}
        self._saw_restart = True

    def _expire(self, page: Page, received_at: float) -> None:
        """Forgets the missing series that are unloaded, as the table above says."""
        for key, series in list(self._missing.items()):
            if isinstance(series.subject, Gpu):
                if received_at - series.at > GPU_FORGOTTEN_AFTER_S:
                    del self._missing[key]
                continue
            idle = series.value == 0.0 or series.quantity in COUNTERS
            if page.dropped_total or (series.has_mates if series.had_mates else not idle):
                series.gone_since = nan
                continue
            series.gone_since = received_at if isnan(series.gone_since) else series.gone_since
            limit_s = UNLOADED_AFTER_S if series.had_mates and idle else UNLOADED_BUSY_AFTER_S
            if received_at - series.gone_since >= limit_s:
                del self._missing[key]

    def _with_gaps(self, plan: ReadPlan, page: Page, samples: Samples, values: Floats, valid: Mask) -> Samples:
        subjects = self._with_missing_subjects(samples.subjects)
        found = [
            *self._invalid(plan, samples, values, valid),
            *self._conflicting(plan, page),
            *self._absent(subjects),
            *self._unparsable(plan, page, samples.subjects),
        ]
        found += _unpaired(plan, page, {(row, quantity) for row, quantity, *_ in found})
        if not found:
            return samples
        bounds = plan.lower_bounds(page)
        table = np.full((len(subjects), len(samples.quantities)), nan)
        table[: len(samples.subjects)] = samples.values
        gaps = []
        for row, quantity, reason, text, since in found:
            bound = nan
            if quantity in samples.quantities and row < len(samples.subjects) and not isinstance(subjects[row], Gpu):
                bound = float(bounds[quantity][row])
                table[row, samples.quantities.index(quantity)] = nan
            gaps.append(Gap(row, quantity, bound, reason, text, since))
        at = np.append(samples.at, self._last_readings(subjects[len(samples.subjects) :]))
        missing = self.missing() if self._missing else ()
        return replace(samples, subjects=subjects, values=table, at=at, gaps=tuple(gaps), missing=missing)

    def _with_missing_subjects(self, subjects: tuple[Subject, ...]) -> tuple[Subject, ...]:
        there = {_identity(subject) for subject in subjects}
        gone = {_identity(series.subject): series.subject for series in self._missing.values()}
        extended = (*subjects, *(subject for identity, subject in gone.items() if identity not in there))
        # The same tuple as long as its content is the same: readers compare it by identity.
        if subjects is not self._subjects or extended != self._extended:
            self._subjects, self._extended = subjects, extended
        return self._extended

    def _last_readings(self, subjects: Sequence[Subject]) -> list[float]:
        """POSIX seconds of each row: a GPU's last reading; for a queue with unknown values, the last response."""
        read_at = {_identity(series.subject): series.at for series in self._missing.values()}
        return [read_at[_identity(each)] if isinstance(each, Gpu) else self._judged_at for each in subjects]

    def _absent(self, subjects: Sequence[Subject]) -> Iterator[_Found]:
        rows = {_identity(subject): row for row, subject in enumerate(subjects)}
        for series in self._missing.values():
            yield rows[_identity(series.subject)], series.quantity, GapReason.MISSING, series.text, series.at

    def _invalid(self, plan: ReadPlan, samples: Samples, values: Floats, valid: Mask) -> Iterator[_Found]:
        for index in np.flatnonzero(~valid).tolist():
            series, row = self._present[self._keys[index]], plan.wanted[index].row
            if isinstance(series.subject, Gpu) and not plan.is_wrong(index, float(values[index])):
                continue  # "no value": the GPU does not have this field
            if not np.isnan(samples.column(series.quantity)[row]):
                continue  # another copy of the same measurement is valid
            yield row, series.quantity, GapReason.INVALID, series.text, nan

    def _conflicting(self, plan: ReadPlan, page: Page) -> Iterator[_Found]:
        conflicts = set(page.conflicts)
        for key, wanted in zip(self._keys, plan.wanted, strict=True):
            if wanted.series in conflicts:
                yield wanted.row, wanted.quantity, GapReason.CONFLICTING, self._present[key].text, nan

    def _unparsable(self, plan: ReadPlan, page: Page, subjects: Sequence[Subject]) -> Iterator[_Found]:
        """A line of a wanted family that does not parse may be of any subject, unless a missing series explains it."""
        explained = {series.name for series in self._missing.values()}
        for family, quantity in plan.families.items():
            if family in explained or not _is_broken(family, page.broken):
                continue
            for row, subject in enumerate(subjects):
                if isinstance(subject, Gpu) == (quantity in GPU_ACTIVITY):
                    yield row, quantity, GapReason.UNPARSABLE, family, nan


def _unpaired(plan: ReadPlan, page: Page, explained: Collection[tuple[int, Quantity]]) -> Iterator[_Found]:
    for each in plan.unpaired:
        if (each.row, each.quantity) not in explained:
            _, labels = page.layout.read(each.series)
            yield each.row, each.quantity, GapReason.MISSING, _text(each.family, labels), nan


def _identity(subject: Subject) -> Subject | tuple[str, str | None]:
    """The identity of a subject across responses. A GPU's pods, for one, may change."""
    return (subject.uuid, subject.instance) if isinstance(subject, Gpu) else subject


def _is_broken(family: str, broken: frozenset[str]) -> bool:
    """Whether a line of the family may be among those that did not parse, maybe broken within its name."""
    return family in broken or any(family.startswith(name) for name in broken)


def _key(plan: ReadPlan, layout: Layout, wanted: Wanted) -> Key:
    """The identity of a series across responses. A GPU's labels name its pod, and change with it."""
    subject = plan.subjects[wanted.row]
    if isinstance(subject, Gpu):
        return subject.uuid, subject.instance or "", wanted.quantity
    name, labels = layout.read(wanted.series)
    return name, *(text for pair in sorted(labels.items()) for text in pair)


def _series(plan: ReadPlan, layout: Layout, wanted: Wanted) -> _Series:
    name, labels = layout.read(wanted.series)
    subject = plan.subjects[wanted.row]
    return _Series(subject, wanted.quantity, name, _text(name, labels), _pairs(labels), value=nan, at=nan)


def _restored(identity: Identity, record: MissingSeries) -> _Series:
    is_gpu = isinstance(identity.subject, Gpu)
    labels = {} if is_gpu else dict(zip(identity.key[1::2], identity.key[2::2], strict=True))
    return _Series(
        subject=identity.subject,
        quantity=identity.quantity,
        name=identity.text.partition("{")[0] if is_gpu else identity.key[0],
        text=identity.text if is_gpu else _text(identity.key[0], labels),
        labels=_pairs(labels),
        value=record.value,
        at=record.at,
        had_mates=record.had_mates,
        gone_since=record.gone_since,
        identity=record.identity,
    )


def _text(name: str, labels: Mapping[str, str]) -> str:
    """A series for messages, short and without control characters."""
    pairs = ",".join(f'{label}="{value}"' for label, value in labels.items())
    whole = f"{name}{{{pairs}}}" if pairs else name
    shown = "".join(char if char.isprintable() else "\ufffd" for char in whole[: TEXT_LENGTH + 1])
    return shown if len(whole) <= TEXT_LENGTH else shown[: TEXT_LENGTH - 1] + "…"


def _pairs(labels: Mapping[str, str]) -> tuple[bytes, ...] | None:
    if not labels or any(char in value for value in labels.values() for char in '\\"\n'):
        return None
    return tuple(f'{label}="{value}"'.encode() for label, value in labels.items())


def _carried(missing: Iterable[_Series], layout: Layout) -> Iterator[bool]:
    """Whether series of other families have all labels of each of these: then what the labels describe still exists.

    The work is bounded, because a target may invent labels: series that are not checked count as carried.
    """
    results: dict[tuple[str, tuple[bytes, ...]], bool] = {}
    left = MAX_CHECKED
    for series in missing:
        if series.labels is None:
            yield True
            continue
        key = series.name, series.labels
        if key not in results:
            if left <= 0 or len(results) >= MAX_LABEL_SETS:
                yield True
                continue
            results[key], checked = layout.carries(*key, left)
            left -= checked
        yield results[key]
