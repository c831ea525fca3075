"""Reads the size of the KV cache from an engine's metrics. Pure.

vLLM exposes its cache configuration as labels of `vllm:cache_config_info` (`CacheConfig.metrics_info`): blocks, tokens
of a block, and the ratio of the GPU that it takes. The KV cache is blocks x tokens of a block. SGLang exposes
`sglang:max_total_num_tokens`, or `page_size` and `num_pages` as labels of `sglang:cache_config_info`, and no ratio.

Worked example: `num_gpu_blocks="29761"` and `block_size="16"` are 476,176 tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import NamedTuple

from exporter.textformat import Page

# By family: the labels with blocks, tokens of a block, and the ratio of the GPU's memory.
_LABELS = {
    "vllm:cache_config_info": ("num_gpu_blocks", "block_size", "gpu_memory_utilization"),
    "sglang:cache_config_info": ("num_pages", "page_size", ""),
}
_TOKENS = "sglang:max_total_num_tokens"
FAMILIES = (*_LABELS, _TOKENS)


class EngineMemory(NamedTuple):
    """What an engine exposes of its memory; None: not exposed.

    kv_tokens: for which the KV cache has room. utilization: ratio of the GPU's memory that the engine takes, 0..1.
    """

    kv_tokens: int | None
    utilization: float | None


class EngineSeries(NamedTuple):
    """One series of an engine."""

    name: str
    labels: Mapping[str, str]
    value: float


def series_of(page: Page) -> Iterable[EngineSeries]:
    """The series of a response that `engine_memory` reads."""
    for row, (name, value) in enumerate(zip(page.layout.names, page.values.tolist(), strict=True)):
        if name in FAMILIES:
            yield EngineSeries(name, page.layout.labels(row), value)


def engine_memory(series: Iterable[EngineSeries]) -> EngineMemory | None:
    """That of the engine with the smallest KV cache; None if no engine exposes anything."""
    found = [each for each in map(_read, series) if each != EngineMemory(None, None)]
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
