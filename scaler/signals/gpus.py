"""Pages of GPUs: what of each is wholly one workload's, as the columns of a slot.

It remembers of each page what the page itself forgets now and then (a pod's label, a GPU's activity) or never says
(how old its numbers are). Whose a pod is, others know; what is shared is nobody's (law 9), and utilisation stands in
for the idle verdict alone: one request pegs it. A GPU that has said its activity and says it no more is not quiet: it
is not seen. One that never said it cannot be seen, and its workload is judged by its requests.

Worked example: a node's page shows two GPUs of one pod of `ai/chat`, 40 % and 80 % active. The share of `ai/chat` is
GPU_SUM 1.2, GPU_WEIGHT 2, GPU_COUNT 2, GPU_BUSIEST 0.8, GPU_PODS 1. Of MIG instances 3g and 1g instead, at 30 % and
100 %, GPU_SUM is 3/7 x 0.3 + 1/7 x 1.0 and GPU_WEIGHT 4/7: a mean of 0.475, with a ceiling of 0.5.

What a person is told of a workload's GPUs: by what their activity is known, and what is missing of it.

It knows counts and words and decides nothing. Engine activity sizes and proves idleness; utilisation stands in where
there is none, for idleness alone; where there is neither, requests decide alone.

Worked example: two GPUs of its own, of which one says utilisation only: `activity` is "mixed", and a note says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from math import isnan, nan
from typing import NamedTuple

import numpy as np

from exporter.attribution import LABEL_MEMORY_S, Labels, Names, Owners, assign, named
from exporter.catalog.gpus import ceiling, share
from exporter.catalog.missing_series import read_label, write_label
from exporter.model import Floats, Gap, Gpu, MissingSeries, Part, Quantity, Role, Samples, Target, WorkloadKey
from exporter.scrape.interval import Beats

from .aggregate import Aggregate
from .slots import Column

# A GPU that is not in the responses any more counts as its pod's for as long as a cluster knows that the pod lives;
# where no cluster is asked, for so long (the default hold).
MISSING_S = 300.0


class GpuShareReading(NamedTuple):
    """values: shape (len(Column),), NaN where the page does not say. at: POSIX seconds of its oldest part.
    gaps: what is incomplete of the workload's own GPUs.
    """

    values: Floats
    at: float
    gaps: tuple[Gap, ...] = ()


@dataclass(slots=True)
class _Page:
    """What is remembered of one page. spoke: GPUs and instances that have ever said their activity on it. own: those
    that are wholly one workload's, as of the last reading.
    """

    labels: Labels = field(default_factory=Labels)
    beats: Beats = field(default_factory=Beats)
    spoke: set[tuple[str, str | None]] = field(default_factory=set)
    own: dict[WorkloadKey, list[tuple[str, str | None]]] = field(default_factory=dict)
    last: tuple[Samples, float] | None = None


def on_page(target: Target) -> Target:
    """The GPUs on a page that is asked for its queues: to be kept apart from them, as a node's are."""
    return replace(target, role=Role.GPUS, owner=None)


def beside(target: Target, samples: Samples) -> Samples | None:
    """The GPUs that the page of an engine shows beside its queues, as that of `tidegate export` does; None if none.

    A pod speaks of its own GPUs alone: whoever runs it could write any pod's name on its page (law 10). A page without
    any has not lost them: what it said of them is old by and by.
    """
    rows = [
        row
        for row, subject in enumerate(samples.subjects)
        if isinstance(subject, Gpu) and subject.pods and (target.pod is None or subject.pods == (target.pod,))
    ]
    if target.role is not Role.PODS or not rows:
        return None
    subjects = tuple(samples.subjects[row] for row in rows)
    place = {row: number for number, row in enumerate(rows)}
    gaps = tuple(gap._replace(row=place[gap.row]) for gap in samples.gaps if gap.row in place)
    return replace(samples, subjects=subjects, values=samples.values[rows], at=samples.at[rows], gaps=gaps)


@lru_cache(maxsize=2**16)
def gpu_key(uuid: str, instance: str | None) -> bytes:
    """A GPU or MIG instance as a snapshot names it, 16 bytes."""
    return blake2b(f"{uuid}\0{instance or ''}".encode(), digest_size=16).digest()


class GpuShares:
    """What pages of GPUs say of workloads, and what of each page is remembered until the next."""

    def __init__(self, owners: Owners, names: Names | None = None) -> None:
        """names: of pods that a page knows by their UID; None where nobody can tell."""
        self._owners, self._names = owners, names
        self._pages: dict[Target, _Page] = {}
        self._spoke_before: set[bytes] = set()

    def spoken(self) -> Iterator[tuple[WorkloadKey, bytes]]:
        """Of each workload the GPUs that are wholly its own and have ever said their activity, by `gpu_key`."""
        for page in self._pages.values():
            for workload, gpus in page.own.items():
                yield from ((workload, gpu_key(*gpu)) for gpu in gpus if gpu in page.spoke)

    def unlabelled(self, target: Target) -> tuple[MissingSeries, ...]:
        """The GPUs of a target that have lost their pod label, as a checkpoint holds them."""
        page = self._pages.get(target)
        lost = () if page is None or not page.labels.lost_at else page.labels.lost()
        written = ((write_label(gpu), gpu.pods, at) for gpu, at in lost)
        return tuple(MissingSeries(each, pods, nan, at, nan, False, nan) for each, pods, at in written if each)

    def restore(self, target: Target, missing: Iterable[MissingSeries]) -> None:
        """Take labels that were lost when another process watched this target."""
        for each in missing:
            gpu = read_label(each.identity)
            if gpu is not None:
                self._pages.setdefault(target, _Page()).labels.restore(gpu, each.at)

    def believe(self, spoken: Iterable[bytes]) -> None:
        """These have spoken before anybody looked here: silent now, they are not quiet."""
        self._spoke_before.update(spoken)

    def read(self, target: Target, samples: Samples, at: float) -> Mapping[WorkloadKey, GpuShareReading]:
        """What a page says of each workload that has a GPU of its own on it. `at`: POSIX seconds of receipt."""
        page = self._pages.get(target)
        if page is None:
            page = self._pages[target] = _Page()
            gpus = ((each.uuid, each.instance) for each in samples.subjects if isinstance(each, Gpu))
            page.spoke.update(gpu for gpu in gpus if self._spoke_before and gpu_key(*gpu) in self._spoke_before)
        page.own = {}
        if self._names is not None:
            samples = named(samples, self._names)
        samples = page.labels.resolve(samples, self._owners, at)
        page.beats.update(samples)
        lag, stopped_at = page.beats.interval_s, page.beats.stopped_at(at)
        page.last = samples, at if stopped_at is None else min(at, stopped_at)
        # A value from before a pod began carries its name all the same: it may be as old as the interval.
        shares = assign(replace(samples, at=samples.at - lag), self._owners)
        found, said = {}, _Said.by(samples)
        missing = {gap.row for gap in samples.gaps if np.isnan(samples.values[gap.row]).all()}
        for workload, rows in shares.items():
            parts = list(self._parts(samples, rows.shared, workload, lag))
            own = _gpus(samples, (row for row in rows.exclusive if self._is_its_own(samples, row, missing, at)))
            left = {row: own.pop(row) for row in list(own) if self._may_have_ended(page, own[row], at)}
            if not own and not left and not parts:
                continue
            page.own[workload] = [(gpu.uuid, gpu.instance) for gpu in own.values()]
            gaps = tuple(gap for gap in samples.gaps if gap.row in own)
            values = _values(said, own, page.spoke, {gap.row for gap in gaps})
            values[Column.GPU_LAG] = lag
            # A GPU whose pod may have ended sizes nothing; what still works on it may be the pod's.
            also = [*(said.activity(row) for row in left), *(part.utilization for part in parts)]
            if also:
                values[Column.GPU_BUSIEST] = _largest([values[Column.GPU_BUSIEST], *also])
            if parts:
                values[Column.GPU_PARTS] = len(parts)
                values[Column.GPU_MEMORY] = _sum([values[Column.GPU_MEMORY], *(p.memory for p in parts)])
            read = [row for row in (*rows.exclusive, *rows.shared) if row not in missing]
            measured = min([at, *samples.at[read].tolist()])
            found[workload] = GpuShareReading(
                values, measured if stopped_at is None else min(measured, stopped_at), gaps
            )
        everybody = _gpus(samples, range(len(samples.subjects)))
        page.spoke.update((gpu.uuid, gpu.instance) for row, gpu in everybody.items() if said.speaks(row))
        return found

    def _parts(self, samples: Samples, shared: Sequence[int], workload: WorkloadKey, lag: float) -> Iterator[Part]:
        """What is measured per process of this workload's pods on GPUs that others share. The GPU's own numbers are
        nobody's (law 9): utilisation by process may keep its workload awake, and sizes nothing, as utilisation never
        does.
        """
        for row in shared:
            at = float(samples.at[row]) - lag
            for part in getattr(samples.subjects[row], "parts", ()):
                if workload in self._owners(part.pod, at):
                    yield part

    def _is_its_own(self, samples: Samples, row: int, missing: Collection[int], at: float) -> bool:
        """Whether a GPU that the response does not show still counts: where a cluster is asked, it would say that the
        pod has ended.
        """
        return row not in missing or self._names is not None or at - float(samples.at[row]) <= MISSING_S

    def _may_have_ended(self, page: _Page, gpu: Gpu, at: float) -> bool:
        """Whether the pod of a GPU without a label may be gone: only a cluster would know."""
        lost_at = page.labels.lost_at.get((gpu.uuid, gpu.instance))
        return self._names is None and lost_at is not None and at - lost_at > LABEL_MEMORY_S

    def forget(self, target: Target) -> None:
        """The page will not be asked again."""
        self._pages.pop(target, None)

    def adopt(self, other: GpuShares) -> None:
        """The same pages go on being asked: what is remembered of them stays. Whose pods are may be told anew."""
        self._pages, self._spoke_before = other._pages, other._spoke_before

    def pages(self) -> Iterator[tuple[Target, Samples, float]]:
        """The last page of each target, labels recalled. POSIX seconds: of receipt, or since when it stands still."""
        for target, page in self._pages.items():
            if page.last is not None:
                yield target, *page.last

    def lag_s(self, target: Target) -> float:
        """Seconds by which what a page says may be older than its receipt."""
        return self._pages[target].beats.interval_s


def _gpus(samples: Samples, rows: Iterable[int]) -> dict[int, Gpu]:
    chosen = ((row, samples.subjects[row]) for row in rows)
    return {row: subject for row, subject in chosen if isinstance(subject, Gpu)}


class _Said(NamedTuple):
    """What a page says of its GPUs, by row: of the few that are a workload's, lists are faster than arrays."""

    engine: list[float]
    utilisation: list[float]
    memory: list[float]
    lost: list[float]

    @classmethod
    def by(cls, samples: Samples) -> _Said:
        return cls(*(samples.column(quantity).tolist() for quantity in _SAID))

    def activity(self, row: int) -> float:
        """Engine activity, else utilisation; NaN if neither is known."""
        return self.utilisation[row] if isnan(self.engine[row]) else self.engine[row]

    def speaks(self, row: int) -> bool:
        return not isnan(self.activity(row))


_SAID = (Quantity.GPU_ENGINE_ACTIVE, Quantity.GPU_UTILIZATION, Quantity.GPU_MEMORY_USED, Quantity.GPU_LOST)


def _values(
    said: _Said, gpus: Mapping[int, Gpu], spoke: set[tuple[str, str | None]], incomplete: Collection[int]
) -> Floats:
    """What the GPUs of these rows say, all of which are wholly one workload's. incomplete: rows of which a part is not
    complete.
    """
    total, weights, tops, utilised, silent, blind, lost = 0.0, 0.0, 0.0, 0, 0, 0, 0
    for row, gpu in gpus.items():
        engine = said.engine[row]
        silenced = not said.speaks(row) and (gpu.uuid, gpu.instance) in spoke
        blind += said.lost[row] != 1.0 and (row in incomplete or silenced)
        if not isnan(engine):
            weight = share(gpu)
            total, weights, tops = total + engine * weight, weights + weight, tops + (ceiling(gpu) or 1.0) * weight
        elif not isnan(said.utilisation[row]):
            utilised += 1
        elif said.lost[row] == 1.0:
            lost += 1
        else:
            silent += 1
    values = np.full(len(Column), np.nan)
    if weights:
        values[[Column.GPU_SUM, Column.GPU_WEIGHT, Column.GPU_CEILING]] = total, weights, tops
    values[Column.GPU_BUSIEST] = _largest(said.activity(row) for row in gpus)
    values[_COUNTS] = len(gpus), utilised, silent, blind, lost
    values[Column.GPU_MEMORY] = _sum(said.memory[row] for row in gpus)
    if gpus:
        values[Column.GPU_PODS] = len({pod for gpu in gpus.values() for pod in gpu.pods})
    return values


_COUNTS = [Column.GPU_COUNT, Column.GPU_UTILISED, Column.GPU_SILENT, Column.GPU_BLIND, Column.GPU_LOST]


def _sum(values: Iterable[float]) -> float:
    """Over what is known; NaN where nothing is."""
    said = [value for value in values if not isnan(value)]
    return sum(said) if said else nan


def _largest(values: Iterable[float]) -> float:
    return max((value for value in values if not isnan(value)), default=nan)


def gpu_activity(totals: Aggregate, place: int) -> str | None:
    """By what the activity of its GPUs is known: "engine", "utilisation", "process" (utilisation by process, on GPUs
    that others share), "mixed", "none"; None where it has no GPU that is its own or measured for it.
    """
    gpus = totals.gpus
    alive = gpus.shown[place] - gpus.lost[place]
    engine = alive - gpus.utilised[place] - gpus.silent[place]
    if not gpus.shown[place] + gpus.parts[place] > 0.0:
        return None
    ways = {"engine": engine, "utilisation": gpus.utilised[place], "none": gpus.silent[place]}
    ways["process"] = gpus.parts[place]
    found = [way for way, count in ways.items() if count > 0.0]
    return found[0] if len(found) == 1 else "mixed" if found else "none"


def gpu_notes(totals: Aggregate, place: int, target: float | None) -> list[str]:
    """What somebody who looks at its GPUs would ask next. `target`: engine activity it is sized by, if it is."""
    gpus, seen = totals.gpus, totals.seen
    shown, held = gpus.shown[place], totals.gpus_held[place]
    found = []
    if seen.gpus_stale[place]:
        found.append("its GPUs are not seen at present, so idleness cannot be proven")
    if seen.gpus_blind[place]:
        found.append(
            "a GPU of its own no longer says its activity (profiling paused, or an exporter in trouble), so idleness "
            "cannot be proven"
        )
    elif gpus.silent[place] > 0.0:
        found.append(
            f"{gpus.silent[place]:.0f} of its {shown:.0f} GPUs say no activity: idleness is told by requests alone"
        )
    if gpus.utilised[place] > 0.0:
        found.append(
            f"{gpus.utilised[place]:.0f} of its {shown:.0f} GPUs say no engine activity: utilisation stands in for it "
            "in the idle verdict, and sizes nothing"
        )
    if gpus.parts[place] > 0.0:
        found.append(
            f"{gpus.parts[place]:.0f} of its pods are on GPUs that others share and that are measured by process: that "
            "utilisation counts in the idle verdict, and sizes nothing"
        )
    if gpus.lost[place] > 0.0:
        found.append(
            f"{gpus.lost[place]:.0f} of its {shown:.0f} GPUs fell silent after a fatal Xid error: no capacity, and "
            "left out of the mean (tidegate_gpu_lost says which)"
        )
    if target is not None and gpus.ceiling[place] <= target:
        found.append(
            f"its engine activity may top at {gpus.ceiling[place]:.2f}, which is not above the target of {target:g}: "
            "a single busy compute instance fills no MIG instance of several slices"
        )
    if 0 < shown < held:
        found.append(
            f"its pods hold {held:.0f} GPUs, and pages show {shown:.0f} of them as its own: the others are shared, "
            "or not labelled"
        )
    return found
