r"""Vendors' words and what they mean: from the series of a page to quantities of queues and GPUs.

A page's layout is compiled once into a plan; a page of the same layout is then read by NumPy alone. The knowledge is
in tables (`engines`, `proxies`, `brokers`, `dcgm` and their neighbours), each line with its source. Nothing here knows
where a page came from, who owns a pod, or what a number is good for; and nothing is guessed: what a page does not say
is NaN.

Worked example: `Reader("auto").read(parse(b'vllm:num_requests_waiting{model_name="m"} 3\n'), received_at=100.0)` has
`kind == "vllm"`, `subjects == (Queue("m"),)`, `column(REQUESTS_WAITING) == [3.0]` and `at == [100.0]`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache, partial
from types import MappingProxyType

import numpy as np

from exporter.model import MissingSeries, Samples, printable
from exporter.textformat import Layout, Page, Selection

from .brokers import CELERY, KAFKA, NATS, RABBITMQ, REDIS_EXPORTER, RQ
from .completeness import START_TIME, Completeness
from .engines import KSERVE, LLAMACPP, LMDEPLOY, NIM, RAY_VLLM, SGLANG, TEI, TGI, TORCHSERVE, TRITON, TRTLLM, VLLM
from .gateways import ENVOY, EPP, HTTP_ADDON, KNATIVE, LITELLM, RAY_SERVE
from .gpus import DCGM, UNITS, Faults
from .gpus_other import AMD, HAMI, INTEL, INTEL_XPUMD, NVIDIA_SMI
from .kind import Kind
from .model_gateways import DYNAMO, ENVOY_AI_GATEWAY, PRODUCTION_STACK, SMG
from .own import OWN, NotHeard
from .plan import ReadPlan
from .schema import KindTable

__all__ = [
    "AUTO",
    "GPU_KINDS",
    "KINDS",
    "Kind",
    "NotHeard",
    "ReadPlan",
    "Reader",
    "UnknownKind",
    "compile_plan",
    "detect",
    "families",
    "selection",
]

AUTO = "auto"
_ALL = (
    DCGM,
    *(VLLM, RAY_VLLM, SGLANG, TRITON, LLAMACPP, TGI, TEI, TRTLLM, NIM, LMDEPLOY, TORCHSERVE, KSERVE),
    *(RAY_SERVE, EPP, ENVOY, LITELLM, KNATIVE, HTTP_ADDON),
    *(PRODUCTION_STACK, DYNAMO, SMG, ENVOY_AI_GATEWAY),
    *(REDIS_EXPORTER, CELERY, RQ, RABBITMQ, NATS, KAFKA),
    *(NVIDIA_SMI, HAMI, AMD, INTEL, INTEL_XPUMD),
    OWN,
)
KINDS: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in _ALL})
# Pages of GPUs alone: no workload's queue is on them.
GPU_KINDS = frozenset(kind.name for kind in (DCGM, NVIDIA_SMI, HAMI, AMD, INTEL, INTEL_XPUMD))


FEW_NAMES = 3  # of a page nobody knows, for a person to recognise it by


class UnknownKind(ValueError):  # noqa: N818 - it names what is unknown, not that something failed
    """No kind of the catalog is on the page, or none has the name asked for."""


def detect(layout: Layout) -> str | None:
    """The kind of a page, None if no known family is there.

    The strongest sign decides, then how many families carry it: vLLM's names on a Triton page are its backend's,
    `nv_gpu_*` on an engine's page makes no Triton, and an engine's names on Envoy's page are the engine's.
    """
    carried = _signs_of(layout)
    best, kind_of_best = (0, 0), None
    for kind in KINDS.values():
        for prefix, strength in kind.signs.items():
            carriers = carried.get(prefix, 0)
            if carriers and (strength, carriers) > best:
                best, kind_of_best = (strength, carriers), kind.name
    return kind_of_best


# A name counts for the longest sign that it begins with, which the first alternative that matches is.
_SIGNS = tuple(sign for kind in KINDS.values() for sign in kind.signs)
_SIGN = re.compile("|".join(map(re.escape, sorted(_SIGNS, key=len, reverse=True))))


def _signs_of(layout: Layout) -> Mapping[str, int]:
    """The number of distinct names that begin with each sign. One step per name, however many signs there are."""
    if layout.rest is not None:
        return layout.rest.signs
    return Counter(match[0] for name in set(layout.names) if (match := _SIGN.match(name)) is not None)


@cache
def families(kind: str) -> frozenset[str]:
    """The names of the families that the catalog reads of a kind; "auto" is of every kind. KeyError for no kind."""
    if kind == AUTO:
        return frozenset(name for each in KINDS for name in families(each))
    return frozenset(_families(KINDS[kind]))


def _families(kind: Kind) -> Iterable[str]:
    match kind.compile:
        case partial(args=(_, KindTable(rows=rows))):
            return (name for row in rows for name in row.names)
        case DCGM.compile:
            return UNITS
    raise TypeError(f"{kind.name}: its families are written down neither in a table nor as fields")


@cache
def selection() -> Selection:
    """What a scanner must select so that a target of any kind, or of a kind to be detected, is read as a whole.

    All of DCGM's series: those of fields that are not read are looked through for marks, and their times count.
    """
    names = families(AUTO) - families(DCGM.name) | {START_TIME}
    return Selection(names, prefixes=tuple(DCGM.signs), signs=_SIGNS)


def compile_plan(kind: str, layout: Layout) -> ReadPlan:
    """Which series of a layout is which quantity of which subject. Once per layout."""
    if kind not in KINDS:
        raise UnknownKind(f"{kind!r} is none of the kinds {', '.join(KINDS)}")
    return KINDS[kind].compile(layout)


class Reader:
    """Reads the pages of one target: remembers the plan of the last layout, and which GPUs have failed since."""

    def __init__(self, kind: str) -> None:
        """`kind`: one of KINDS, or "auto" to look at each new layout."""
        if kind != AUTO and kind not in KINDS:
            raise UnknownKind(f"{kind!r} is none of the kinds {AUTO}, {', '.join(KINDS)}")
        self._kind = kind
        self._layout: Layout | None = None
        self._plan: ReadPlan | None = None
        self._faults = Faults()
        self._completeness = Completeness()

    def restore(self, missing: Iterable[MissingSeries]) -> None:
        """Takes series for missing that another process has found missing, until they return; see `completeness`."""
        self._completeness.restore(missing)

    @property
    def missing(self) -> tuple[MissingSeries, ...]:
        """The missing series, for `restore`."""
        return self._completeness.missing()

    def read(self, page: Page, received_at: float) -> Samples:
        """What the page says; a page without series has no rows and the last kind. `received_at`: POSIX seconds."""
        rest = page.layout.rest
        if not len(page.values) and not (rest and (rest.signs or rest.names)):
            last = self._plan.kind if self._plan is not None else self._kind
            return Samples(last, (), (), np.empty((0, 0)), np.empty(0), page.dropped)
        if self._plan is None or page.layout is not self._layout:
            kind = detect(page.layout) if self._kind == AUTO else self._kind
            if kind is None:
                raise UnknownKind(f"{_seen(page.layout)} belongs to one of {', '.join(KINDS)}")
            self._plan = compile_plan(kind, page.layout)
            self._layout = page.layout
        samples = self._plan.read(page, received_at)
        return self._faults.judge(self._completeness.judge(self._plan, page, samples, received_at))


def _seen(layout: Layout) -> str:
    """What to say of a page of no known kind: a few names of its families."""
    names = list(dict.fromkeys(layout.names)) or (layout.rest.names if layout.rest is not None else ())
    some = ", ".join(map(printable, names[:FEW_NAMES])) + (", ..." if len(names) > FEW_NAMES else "")
    return f"no family on this page ({some})"
