"""Reads the size of the KV cache from an engine's metrics. Pure.

vLLM exposes its cache configuration as labels of `vllm:cache_config_info` (`CacheConfig.metrics_info`): blocks, tokens
of a block, and the ratio of the GPU that it takes. The KV cache is blocks x tokens of a block. SGLang exposes
`sglang:max_total_num_tokens`, or `page_size` and `num_pages` as labels of `sglang:cache_config_info`, and no ratio.

Worked example: `num_gpu_blocks="29761"` and `block_size="16"` are 476,176 tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import NamedTuple

from exporter.model import EngineMemory
from exporter.textformat import Layout, Page

# By family: the labels with blocks, tokens of a block, and the ratio of the GPU's memory.
_LABELS = {
    "vllm:cache_config_info": ("num_gpu_blocks", "block_size", "gpu_memory_utilization"),
    "sglang:cache_config_info": ("num_pages", "page_size", ""),
}
_TOKENS = "sglang:max_total_num_tokens"
FAMILIES = (*_LABELS, _TOKENS)


class EngineSeries(NamedTuple):
    """One series of an engine."""

    name: str
    labels: Mapping[str, str]
    value: float


def series_of(page: Page, rows: Sequence[int]) -> Iterable[EngineSeries]:
    """These series of a response."""
    for row in rows:
        yield EngineSeries(page.layout.names[row], page.layout.labels(row), float(page.values[row]))


def engine_memory(series: Iterable[EngineSeries]) -> EngineMemory | None:
    """That of the engine with the smallest KV cache; None if no engine exposes anything."""
    return smallest(each for each in map(_read, series) if each != EngineMemory(None, None))


def smallest(memories: Iterable[EngineMemory | None]) -> EngineMemory | None:
    """The one with the smallest KV cache; None if there is none."""
    found = [each for each in memories if each is not None]
    return min(found, key=lambda each: (each.kv_tokens is None, each.kv_tokens or 0), default=None)


def _read(series: EngineSeries) -> EngineMemory:
    if series.name == _TOKENS:
        return EngineMemory(int(series.value) if isfinite(series.value) and series.value > 0.0 else None, None)
    return _configured(series.labels, *_LABELS[series.name])


def _configured(labels: Mapping[str, str], blocks: str, size: str, utilization: str) -> EngineMemory:
    counts = [int(text) if (text := labels.get(name, "")).isdecimal() else 0 for name in (blocks, size)]
    try:
        ratio = float(labels.get(utilization, ""))
    except ValueError:
        ratio = 0.0
    return EngineMemory(counts[0] * counts[1] or None, ratio if 0.0 < ratio <= 1.0 else None)


class EngineMemoryReader:
    """Reads the engine's memory from the responses of one target. It changes when an engine starts, so it is computed
    once per layout and set of values.
    """

    def __init__(self) -> None:
        self._layout: Layout | None = None
        self._rows: Sequence[int] = ()
        self._values: list[float] = []
        self._memory: EngineMemory | None = None

    def read(self, page: Page) -> EngineMemory | None:
        """None if the response exposes nothing of it."""
        is_new = page.layout is not self._layout
        if is_new:
            self._layout, self._rows = page.layout, page.layout.select(FAMILIES)
        if not self._rows:
            return None
        values = page.values[self._rows].tolist()
        if is_new or values != self._values:
            self._values, self._memory = values, engine_memory(series_of(page, self._rows))
        return self._memory
