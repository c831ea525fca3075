"""What a kind of page is: how to know it, where it is served by default, and how its layouts become plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from exporter.textformat import Layout

from .plan import Cell, Plan, build
from .probe_paths import COUNTERS, is_probe
from .words import Key, Labels, Row, Table

# What lives at zero replicas. "queue": a broker, or a gateway that keeps the request: what waits is there to be read,
# and its absence is unknown. "refused": the request is turned away and only a counter of failures rises: enough to
# wake, too little to size. "nothing": the page dies with its pod, or shows GPUs, which nobody holds at zero.
AtZero: TypeAlias = Literal["queue", "in_flight", "refused", "nothing"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One vendor's page.

    signs:   how families of this kind begin, and how much that says: a page is of the kind with the strongest sign on
             it. 3: only ever the outer server. 2: a vendor's own prefix. 1: seen on other kinds' pages too. 0: a proxy
             that prints whatever it stands beside (Istio merges the application's page into Envoy's).
    port:    where the page is by default, with `path`.
    work:    requests per replica to aim at (waiting + running); None where a page has no queue. A place to start: what
             one replica can carry depends on model, GPU and lengths, and is for the user to measure.
    repeats_engines: its waiting and running are the engines' own requests seen at another end, not more of them; what
             it holds back itself is `requests_held`.
    at_zero: what of the page moves when a request comes and no replica is there.
    """

    name: str
    signs: Mapping[str, Literal[0, 1, 2, 3]]
    port: int
    path: str
    work: float | None
    compile: Callable[[Layout], Plan]
    repeats_engines: bool = False
    at_zero: AtZero = "nothing"


def compile_table(kind: str, table: Table, layout: Layout) -> Plan:
    """The plan of a page whose kind is written as a table. Once per layout."""
    found = _found(table.rows, layout)
    keys = [key for key, _ in sorted(_first_seen(found).items(), key=lambda item: item[1])]
    subject_of = {key: subject for key, subject in zip(keys, table.subjects(keys), strict=True) if subject is not None}
    subjects = tuple(dict.fromkeys(subject_of.values()))
    place = {subject: row for row, subject in enumerate(subjects)}
    cells: list[Cell] = []
    timed: dict[int, list[int]] = {}
    for row, names in zip(table.rows, found, strict=True):
        for key, index in _first_present(row, names, layout):
            if key in subject_of:
                cells.append(Cell(index, place[subject_of[key]], row.column, row.combine, row.unit))
        for groups in names.values():
            for key, members in groups.items():
                if key in subject_of:
                    timed.setdefault(place[subject_of[key]], []).extend(members)
    return build(
        kind,
        subjects,
        cells,
        table.finish,
        timed=timed,
        families={name: row.column for row in table.rows for name in row.names},
        feeds=table.feeds,
    )


_Groups = dict[str, dict[Key, list[int]]]  # name -> key -> indices of series


def _found(rows: Sequence[Row], layout: Layout) -> list[_Groups]:
    by_name: dict[str, list[int]] = {}
    for index in layout.select(frozenset(name for row in rows for name in row.names)):
        by_name.setdefault(layout.names[index], []).append(index)
    found = []
    for row in rows:
        names: _Groups = {name: {} for name in row.names if name in by_name}
        for name, groups in names.items():
            for index in by_name[name]:
                labels = layout.series[index].labels
                if row.column not in COUNTERS or not is_probe(labels):
                    groups.setdefault(row.key(labels), []).append(index)
        found.append(names)
    return found


def _first_seen(found: Sequence[_Groups]) -> dict[Key, int]:
    first: dict[Key, int] = {}
    for names in found:
        for groups in names.values():
            for key, members in groups.items():
                first[key] = min(members[0], first.get(key, members[0]))
    return first


def _first_present(row: Row, names: _Groups, layout: Layout) -> list[tuple[Key, int]]:
    """For each key the series of the first family that has it: a renamed family printed twice is one number."""
    chosen: dict[Key, list[int]] = {}
    for groups in names.values():
        for key, members in groups.items():
            labels: list[Labels] = [layout.series[index].labels for index in members]
            kept = [members[position] for position in row.keep(labels)]
            if kept:
                chosen.setdefault(key, kept)
    return [(key, index) for key, kept in chosen.items() for index in kept]
