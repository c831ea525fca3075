"""Parses the table of GPUs: memory, bandwidth, throughput and MIG profiles of each model, each figure with its source.

`gpus.yaml` beside this module is the table that ships; the caller reads it. A file of the same form adds models or
replaces rows: `{**parse(shipped, "gpus.yaml"), **parse(text, "mine.yaml")}`. Figures are in datasheet units in the file
and in SI here. A figure that no source gives is None, and everything that would need it is not known.

Throughput is dense. Datasheets print the number with 2:4 sparsity, which is twice as high and which no inference engine
reaches with a dense model.

Worked example: `bandwidth_gb_per_s: [3350, h100]` becomes `Figure(3.35e12, "NVIDIA H100 ... datasheet, 2024 ...")` in
bytes per second. `bandwidth_gb_per_s: [-1, h100]` in the row `L4` of `mine.yaml` is the error
`mine.yaml:9:26: gpus.L4.bandwidth_gb_per_s: must be a number above 0 and at most 1e+06, got -1`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from scaler.config.errors import ConfigErrors, Problem, dotted
from scaler.config.yaml import TextPosition, YamlNode, compose, position_of
from scaler.policy.prices import name_parts

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4")
MIB, GIGA, TERA = 2.0**20, 1e9, 1e12


class Figure(NamedTuple):
    """One figure of a GPU in SI units, and the document that gives it."""

    value: float
    source: str


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One GPU model. A figure without a source is None.

    name:         its words select the model: `H100 80GB HBM3` is what DCGM calls `NVIDIA H100 80GB HBM3`.
    generation:   the architecture, such as hopper; speed is moved only between generations that were measured.
    memory:       usable bytes, where public.
    bandwidth:    bytes per second of the memory.
    throughput:   dense operations per second, by precision.
    interconnect: bytes per second to other GPUs, both directions together.
    tdp:          watts.
    mig:          names of its MIG profiles; empty if it has none.
    """

    name: str
    vendor: str
    generation: str
    memory: Figure | None
    bandwidth: Figure | None
    throughput: Mapping[str, Figure]
    interconnect: Figure | None
    tdp: Figure | None
    mig: tuple[str, ...]
    mig_source: str | None


class _Unit(NamedTuple):
    """factor: what makes SI of the file's unit. most: an upper bound that catches a wrong unit."""

    factor: float
    most: float


_UNITS = {
    "memory_mib": _Unit(MIB, 1e8),
    "bandwidth_gb_per_s": _Unit(GIGA, 1e6),
    "interconnect_gb_per_s": _Unit(GIGA, 1e6),
    "tdp_w": _Unit(1.0, 1e5),
    **{f"{precision}_tflops": _Unit(TERA, 1e6) for precision in PRECISIONS},
}
_TEXTS = ("vendor", "generation")
_MIG_PROFILE = re.compile(r"[1-7]g\.[1-9][0-9]*gb")


def parse(text: str, file: str) -> dict[str, GpuModel]:
    """The models of a file by name. Raises ConfigErrors with every problem, in the order of the file."""
    root, rejected = compose(text)
    reader = _TableReader(file, root)
    for error in rejected:
        reader.report(error.loc, error.message, error.mark)
    models: dict[str, GpuModel] = {}
    if root is not None:
        top = reader.mapping(root, ())
        for key in top.keys() - {"sources", "gpus"}:
            reader.report((key,), "must be sources or gpus")
        sources = reader.sources(top.get("sources"))
        rows = reader.mapping(top["gpus"], ("gpus",)) if "gpus" in top else {}
        models = {name: reader.row(name, node, sources) for name, node in rows.items()}
    if not models and not reader.problems:
        reader.report((), "must have at least one row below gpus")
    if reader.problems:
        raise ConfigErrors(sorted(reader.problems, key=lambda problem: (problem.line or 0, problem.column or 0)))
    return models


def find_model(models: Mapping[str, GpuModel], device: str | None) -> GpuModel | None:
    """The model of a device, as DCGM or a node's label names it; None if the table has none.

    All words of the model's name are in the device's. Of several models the one with most words is taken: `NVIDIA H200
    NVL` is `H200 NVL` and no `H200`.
    """
    parts = name_parts(device or "")
    fitting = [name for name in models if name_parts(name) and name_parts(name) <= parts]
    return models[max(fitting, key=lambda name: (len(name_parts(name)), name))] if fitting else None


def figures_of(model: GpuModel) -> Iterator[tuple[str, Figure]]:
    """Every figure that a model has, by its name."""
    for name in ("memory", "bandwidth", "interconnect", "tdp"):
        figure = getattr(model, name)
        if figure is not None:
            yield name, figure
    yield from model.throughput.items()


class _TableReader:
    """Reads nodes of one file and collects the problems, so that one run reports all of them."""

    def __init__(self, file: str, root: YamlNode | None) -> None:
        self.file = file
        self.root = root
        self.problems: list[Problem] = []

    def report(self, loc: Iterable[int | str], message: str, mark: TextPosition | None = None) -> None:
        loc = tuple(loc)
        if mark is None and self.root is not None:
            mark = position_of(self.root, loc)
        line, column = mark or (None, None)
        self.problems.append(Problem(self.file, line, column, dotted(loc), message))

    def mapping(self, node: YamlNode, loc: tuple[str, ...]) -> dict[str, YamlNode]:
        if isinstance(node.value, dict):
            return node.value
        self.report(loc, f"must be a mapping, got {node.text}")
        return {}

    def sources(self, node: YamlNode | None) -> dict[str, str]:
        found = {} if node is None else self.mapping(node, ("sources",))
        return {key: self.text(child, ("sources", key)) for key, child in found.items()}

    def text(self, node: YamlNode, loc: tuple[str, ...]) -> str:
        if isinstance(node.value, str) and node.value.strip():
            return node.value
        self.report(loc, f"must be text, got {node.text}")
        return ""

    def row(self, name: str, node: YamlNode, sources: Mapping[str, str]) -> GpuModel:
        loc = ("gpus", name)
        entries = self.mapping(node, loc)
        if not name_parts(name):
            self.report(loc, "must have a letter or a digit in its name")
        for key in entries.keys() - _UNITS.keys() - {*_TEXTS, "mig"}:
            allowed = ", ".join((*_TEXTS, *_UNITS, "mig"))
            self.report((*loc, key), f"must be one of {allowed}")
        for key in _TEXTS:
            if key not in entries:
                self.report(loc, f"must have {key}")
        texts = {key: self.text(entries[key], (*loc, key)) for key in _TEXTS if key in entries}
        figures = {
            key: self.figure(entries[key], (*loc, key), unit, sources) for key, unit in _UNITS.items() if key in entries
        }
        mig, mig_source = self.mig(entries["mig"], (*loc, "mig"), sources) if "mig" in entries else ((), None)
        throughput = {precision: figures.get(f"{precision}_tflops") for precision in PRECISIONS}
        return GpuModel(
            name,
            vendor=texts.get("vendor", ""),
            generation=texts.get("generation", ""),
            memory=figures.get("memory_mib"),
            bandwidth=figures.get("bandwidth_gb_per_s"),
            throughput={precision: figure for precision, figure in throughput.items() if figure is not None},
            interconnect=figures.get("interconnect_gb_per_s"),
            tdp=figures.get("tdp_w"),
            mig=mig,
            mig_source=mig_source,
        )

    def pair(self, node: YamlNode, loc: tuple[str, ...], sources: Mapping[str, str]) -> tuple[YamlNode, str] | None:
        """A value and its source: a key of `sources`, or the source in full."""
        value = node.value
        if not isinstance(value, list) or len(value) != 2:  # noqa: PLR2004  a pair
            self.report(loc, f"must be [value, source], got {node.text}")
            return None
        key = self.text(value[1], loc)
        return (value[0], sources.get(key, key)) if key else None

    def figure(self, node: YamlNode, loc: tuple[str, ...], unit: _Unit, sources: Mapping[str, str]) -> Figure | None:
        pair = self.pair(node, loc, sources)
        if pair is None:
            return None
        value = pair[0].value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= unit.most:
            bound = f"must be a number above 0 and at most {unit.most:g}, got {pair[0].text}"
            self.report(loc, bound, pair[0].mark)
            return None
        return Figure(value * unit.factor, pair[1])

    def mig(
        self, node: YamlNode, loc: tuple[str, ...], sources: Mapping[str, str]
    ) -> tuple[tuple[str, ...], str | None]:
        pair = self.pair(node, loc, sources)
        if pair is None:
            return (), None
        names = self.text(pair[0], loc).split()
        for name in names:
            if not _MIG_PROFILE.fullmatch(name):
                self.report(loc, f"must be names of profiles such as 1g.10gb, got {name}", pair[0].mark)
        return tuple(names), pair[1]
