r"""Maps the series of each vendor's metrics to quantities of queues and GPUs.

A layout is compiled once into a plan; NumPy alone reads further responses of that layout. The knowledge is in tables
(`engines`, `gateways`, `brokers`, `dcgm` and others), each row with its source. Nothing is guessed: what a response
does not contain is NaN.

Worked example: `Reader("auto").read(parse(b'vllm:num_requests_waiting{model_name="m"} 3\n'), received_at=100.0)` has
`kind == "vllm"`, `subjects == (Queue("m"),)`, `column(REQUESTS_WAITING) == [3.0]` and `at == [100.0]`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from types import MappingProxyType

import numpy as np

from exporter.histogram import NEAR, Latency
from exporter.model import Floats, MissingSeries, Samples, printable
from exporter.textformat import Layout, Page, Selection

from .brokers import CELERY, KAFKA, NATS, RABBITMQ, REDIS_EXPORTER, RQ
from .completeness import START_TIME, Completeness
from .dcgm import DCGM
from .engine_memory import FAMILIES as ENGINE_MEMORY
from .engine_memory import EngineMemoryReader
from .engines import KSERVE, LLAMACPP, LMDEPLOY, NIM, RAY_VLLM, SGLANG, TEI, TGI, TORCHSERVE, TRITON, TRTLLM, VLLM
from .export import EXPORT, SourcesDown
from .gateways import ENVOY, EPP, HTTP_ADDON, KNATIVE, LITELLM, RAY_SERVE
from .gpus import Faults
from .gpus_other import AMD, HAMI, INTEL, INTEL_XPUMD, NVIDIA_SMI
from .kind import Kind
from .model_gateways import DYNAMO, ENVOY_AI_GATEWAY, PRODUCTION_STACK, SMG
from .plan import ReadPlan

__all__ = [
    "AUTO",
    "GPU_KINDS",
    "KINDS",
    "QUEUE_KINDS",
    "Kind",
    "ReadPlan",
    "Reader",
    "SourcesDown",
    "UnknownKind",
    "bucket_ranges",
    "compile_plan",
    "detect",
    "families",
    "selection",
]  # fmt: skip

AUTO = "auto"
_ALL = (
    DCGM,
    *(VLLM, RAY_VLLM, SGLANG, TRITON, LLAMACPP, TGI, TEI, TRTLLM, NIM, LMDEPLOY, TORCHSERVE, KSERVE),
    *(RAY_SERVE, EPP, ENVOY, LITELLM, KNATIVE, HTTP_ADDON),
    *(PRODUCTION_STACK, DYNAMO, SMG, ENVOY_AI_GATEWAY),
    *(REDIS_EXPORTER, CELERY, RQ, RABBITMQ, NATS, KAFKA),
    *(NVIDIA_SMI, HAMI, AMD, INTEL, INTEL_XPUMD),
    EXPORT,
)
KINDS: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in _ALL})
# Kinds of brokers: their queues hold jobs until a worker takes them.
QUEUE_KINDS = tuple(kind.name for kind in (REDIS_EXPORTER, CELERY, RQ, RABBITMQ, NATS, KAFKA))
# Kinds that expose GPUs alone, and no queue.
GPU_KINDS = frozenset(kind.name for kind in (DCGM, NVIDIA_SMI, HAMI, AMD, INTEL, INTEL_XPUMD))


# A name counts for the longest sign that it begins with, which is the first alternative that matches.
_SIGNS = tuple(sign for kind in KINDS.values() for sign in kind.signs)
_SIGN = re.compile("|".join(map(re.escape, sorted(_SIGNS, key=len, reverse=True))))
FEW_NAMES = 3  # names of a response of unknown kind that an error shows


class UnknownKind(ValueError):  # noqa: N818 - it names the reason
    """The response is of no kind of the catalog, or no kind has this name."""


def detect(layout: Layout) -> str | None:
    """The kind of a response; None if it has no family of any kind.

    The strongest sign decides, then how many families have it. vLLM's names beside Triton's are those of its backend,
    `nv_gpu_*` beside an engine's names makes no Triton, and an engine's names beside Envoy's are the engine's.
    """
    counts = _sign_counts(layout)
    best, kind_of_best = (0, 0), None
    for kind in KINDS.values():
        for prefix, strength in kind.signs.items():
            count = counts.get(prefix, 0)
            if count and (strength, count) > best:
                best, kind_of_best = (strength, count), kind.name
    return kind_of_best


def _sign_counts(layout: Layout) -> Mapping[str, int]:
    """The number of distinct names that begin with each sign. One step per name, however many signs there are."""
    if layout.rest is not None:
        return layout.rest.signs
    return Counter(match[0] for name in set(layout.names) if (match := _SIGN.match(name)) is not None)


@cache
def families(kind: str) -> frozenset[str]:
    """The names of the families that the catalog reads of a kind, or of every kind (AUTO), without the buckets of
    histograms. Raises KeyError.
    """
    if kind == AUTO:
        return frozenset(name for each in KINDS for name in families(each))
    return frozenset(KINDS[kind].families).union(*(row.names for row in KINDS[kind].rows))


@cache
def selection() -> Selection:
    """The names that a scanner must select to read a target of any kind, or to detect its kind.

    It selects all of DCGM's series: fields without a quantity are checked for marks, and their timestamps count.
    """
    names = families(AUTO) - families(DCGM.name) | {START_TIME, *ENGINE_MEMORY}
    rows = [row for kind in KINDS.values() for row in kind.histograms]
    ranged = tuple(frozenset(name for row in rows if row.column == each for name in row.names) for each in Latency)
    return Selection(names, prefixes=tuple(DCGM.signs), signs=_SIGNS, ranged=ranged)


@lru_cache(maxsize=1024)
def bucket_ranges(slo: tuple[float, float] | None) -> Floats:
    """The buckets that a scanner must select for an SLO: seconds until the first token, and per output token.

    Low and high of each `Latency`; NaN without an SLO. Two neighbouring bounds are hardly further apart than NEAR, so
    those next to the limit are in the range.
    """
    if slo is None:
        return np.full(2 * len(Latency), np.nan)
    return np.array([bound for limit in slo for bound in (limit / NEAR, limit * NEAR)])


def compile_plan(kind: str, layout: Layout) -> ReadPlan:
    """Which series of a layout is which quantity of which subject. Once per layout. Raises UnknownKind."""
    if kind not in KINDS:
        raise UnknownKind(f"kind: must be one of {', '.join(KINDS)}, got {kind!r}")
    return KINDS[kind].compile(KINDS[kind], layout)


class Reader:
    """Reads the responses of one target. Remembers the plan of the last layout, GPUs that failed and missing series."""

    def __init__(self, kind: str) -> None:
        """kind: one of KINDS, or AUTO to detect it for each new layout. Raises UnknownKind."""
        if kind != AUTO and kind not in KINDS:
            raise UnknownKind(f"kind: must be one of {AUTO}, {', '.join(KINDS)}, got {kind!r}")
        self._kind = kind
        self._layout: Layout | None = None
        self._plan: ReadPlan | None = None
        self._faults = Faults()
        self._completeness = Completeness()
        self._memory = EngineMemoryReader()

    def restore(self, missing: Iterable[MissingSeries]) -> None:
        """Restores series that were missing before a restart, until they return. See `completeness`."""
        self._completeness.restore(missing)

    @property
    def missing(self) -> tuple[MissingSeries, ...]:
        """The missing series, for `restore`."""
        return self._completeness.missing()

    def read(self, page: Page, received_at: float) -> Samples:
        """The samples; of a response without series, no rows and the last kind. received_at: POSIX seconds.

        Raises UnknownKind, NotHeard.
        """
        rest = page.layout.rest
        if not len(page.values) and not (rest and (rest.signs or rest.names)):
            last = self._plan.kind if self._plan is not None else self._kind
            return Samples(last, (), (), np.empty((0, 0)), np.empty(0), page.dropped)
        if self._plan is None or page.layout is not self._layout:
            kind = detect(page.layout) if self._kind == AUTO else self._kind
            if kind is None:
                raise UnknownKind(f"{_names_text(page.layout)} belongs to one of {', '.join(KINDS)}")
            self._plan = compile_plan(kind, page.layout)
            self._layout = page.layout
        samples = self._plan.read(page, received_at)
        memory = self._memory.read(page)
        if memory is not None:
            samples = replace(samples, memory=memory)
        return self._faults.judge(self._completeness.judge(self._plan, page, samples, received_at))


def _names_text(layout: Layout) -> str:
    """A few names of a response of unknown kind."""
    names = list(dict.fromkeys(layout.names)) or (layout.rest.names if layout.rest is not None else ())
    some = ", ".join(map(printable, names[:FEW_NAMES])) + (", ..." if len(names) > FEW_NAMES else "")
    return f"no family of this response ({some})"
