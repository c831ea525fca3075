r"""Vendors' words and what they mean: from the series of a page to quantities of queues and GPUs.

A page's layout is compiled once into a plan; a page of the same layout is then read by NumPy alone. The knowledge is
in tables (`dcgm`, `engines`, `gateways`), each line with its source. Nothing here knows where a page came from, who
owns a pod, or what a number is good for; and nothing is guessed: what a page does not say is NaN.

Worked example: `Reader("auto").read(parse(b'vllm:num_requests_waiting{model_name="m"} 3\n'), received_at=100.0)` has
`kind == "vllm"`, `subjects == (Queue("m"),)`, `column(REQUESTS_WAITING) == [3.0]` and `at == [100.0]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from exporter.model import Samples
from exporter.textformat import Layout, Page

from .dcgm import DCGM
from .engines import LLAMACPP, SGLANG, TRITON, VLLM
from .gateways import EPP, RAY_SERVE, REDIS_EXPORTER
from .kind import Kind
from .plan import Plan

__all__ = ["AUTO", "KINDS", "Kind", "Plan", "Reader", "UnknownKind", "compile_plan", "detect"]

AUTO = "auto"
KINDS: Mapping[str, Kind] = MappingProxyType(
    {kind.name: kind for kind in (DCGM, VLLM, SGLANG, TRITON, LLAMACPP, RAY_SERVE, EPP, REDIS_EXPORTER)}
)


class UnknownKind(ValueError):  # noqa: N818 - it names what is unknown, not that something failed
    """No kind of the catalog is on the page, or none has the name asked for."""


def detect(layout: Layout) -> str | None:
    """The kind of a page, None if no known family is there.

    The strongest sign decides, then how many families carry it: vLLM's names on a Triton page are its backend's, and
    `nv_gpu_*` on an engine's page makes no Triton.
    """
    names = set(layout.names)
    best, kind_of_best = (0, 0), None
    for kind in KINDS.values():
        for prefix, strength in kind.signs.items():
            carriers = sum(name.startswith(prefix) for name in names)
            if carriers and (strength, carriers) > best:
                best, kind_of_best = (strength, carriers), kind.name
    return kind_of_best


def compile_plan(kind: str, layout: Layout) -> Plan:
    """Which series of a layout is which quantity of which subject. Once per layout."""
    if kind not in KINDS:
        raise UnknownKind(f"{kind!r} is none of the kinds {', '.join(KINDS)}")
    return KINDS[kind].compile(layout)


class Reader:
    """Reads the pages of one target: remembers the plan of the last layout."""

    def __init__(self, kind: str) -> None:
        """`kind`: one of KINDS, or "auto" to look at each new layout."""
        if kind != AUTO and kind not in KINDS:
            raise UnknownKind(f"{kind!r} is none of the kinds {AUTO}, {', '.join(KINDS)}")
        self._kind = kind
        self._layout: Layout | None = None
        self._plan: Plan | None = None

    def read(self, page: Page, received_at: float) -> Samples:
        """What the page says; a page without series has no rows and the last kind. `received_at`: POSIX seconds."""
        if not len(page.values):
            last = self._plan.kind if self._plan is not None else self._kind
            return Samples(last, (), (), np.empty((0, 0)), np.empty(0), page.dropped)
        if self._plan is None or page.layout is not self._layout:
            kind = detect(page.layout) if self._kind == AUTO else self._kind
            if kind is None:
                raise UnknownKind(f"no family on this page belongs to one of {', '.join(KINDS)}")
            self._plan = compile_plan(kind, page.layout)
            self._layout = page.layout
        return self._plan.read(page, received_at)
