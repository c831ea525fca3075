"""Extracts from PromQL what rules need: metric names, windows, matched labels, and kinds of arithmetic. Pure.

No parser: it removes strings, label matchers and lists of labels; the names that remain are metrics. What this cannot
determine, no rule reports.

Worked example: of `avg(rate(vllm:num_requests_running{pod=~"chat-.*"}[5m]))` the metrics are
`{"vllm:num_requests_running"}` and the windows `[300.0]`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# An unclosed string extends to the end of the query.
_STRING = re.compile(r"\"(?:[^\"\\]|\\.)*\"?|'(?:[^'\\]|\\.)*'?|`[^`]*`?", re.DOTALL)
_MATCHERS = re.compile(r"\{[^{}]*\}")
_WINDOW = re.compile(r"\[\s*((?:[0-9]+(?:ms|[smhdwy]))+)")
_RANGE = re.compile(r"\[[^\[\]]*\]")
_LABELS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)", re.IGNORECASE)
_NAME = re.compile(r"(?<![\w:.$])([a-zA-Z_:][\w:]*+)(\s*\()?")  # a name; "(" if it is a function's
_KEYWORDS = frozenset({
    "and", "or", "unless", "by", "without", "on", "ignoring", "bool", "offset", "inf", "nan", "start", "end",
    "group_left", "group_right",
})  # fmt: skip
_PART = re.compile(r"(?<![0-9])([0-9]++)(ms|[smhdwy])")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "y": 31536000.0}
_VECTOR_ZERO = re.compile(r"\bor\s+(?:on\s*\(\s*\)\s*)?vector\s*\(\s*0(?:\.0*)?\s*\)", re.IGNORECASE)
_SUMS = re.compile(r"\b(?:sum|count|count_values|sum_over_time|count_over_time)\b", re.IGNORECASE)
_LABEL = re.compile(r"\b([a-zA-Z_]\w*+)\s*(?:=~|!~|!=|=)")

# Prefixes of the metrics of engines, gateways and GPU exporters.
_ENGINE_METRICS = re.compile(
    r"(?:vllm|sglang|llamacpp|lmdeploy|litellm):?_?|tgi_|te_queue|nv_inference_|nv_trt_llm_|nv_gpu_|trtllm_|ray_serve_"
    r"|inference_pool_|inference_extension_|llm_d_|num_requests_|gpu_cache_|DCGM_FI_|DCGM_EXP_"
)


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """names: the metrics. windows: ranges in seconds. labels: of its matchers. has_arithmetic: multiplies or divides.
    sums: adds or counts. fills: has `or vector(0)`.
    """

    names: frozenset[str]
    windows: tuple[float, ...]
    labels: frozenset[str]
    has_arithmetic: bool
    sums: bool
    fills: bool

    @property
    def on_engines(self) -> bool:
        """Whether it queries inference engines, their gateways, or GPUs."""
        return any(_ENGINE_METRICS.match(name) for name in self.names)


def parse_query(text: str) -> ParsedQuery:
    bare = _STRING.sub('""', text)
    labels = frozenset(label for matchers in _MATCHERS.findall(bare) for label in _LABEL.findall(matchers))
    rest = _LABELS.sub(" ", _MATCHERS.sub(" ", bare))
    windows = tuple(seconds(window) for window in _WINDOW.findall(rest))
    rest = _RANGE.sub(" ", rest)
    names = frozenset(
        name
        for name, called in _NAME.findall(rest)
        if not called and name.lower() not in _KEYWORDS and not _PART.fullmatch(name)
    )
    return ParsedQuery(
        names,
        windows,
        labels,
        bool(re.search(r"[*/%]", rest)),
        bool(_SUMS.search(rest)),
        bool(_VECTOR_ZERO.search(bare)),
    )


def seconds(duration: str) -> float:
    """Seconds of a PromQL duration: "1h30m" is 5400."""
    return sum(float(amount) * _SECONDS[unit] for amount, unit in _PART.findall(duration))
