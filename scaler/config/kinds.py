"""Which kinds of page a configuration may name, as the catalog of quantities has them.

The catalog says how a page is read; a configuration only needs its usual port and path, and how many requests one
replica should hold. A page of GPUs is no engine: nothing can be asked of it. Neither is what lives in front of pods,
but for Ray Serve, whose pods speak of the queue in front of them, and our own page, which repeats an engine's.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from exporter.catalog import GPU_KINDS, KINDS

from .scalars import Scalar, refused

GPUS = "dcgm"
GATEWAY = "epp"
REDIS = "redis_exporter"  # in whose words Redis' own answers are read
OWN = "tidegate"  # the page of `tidegate export`: of an engine, of GPUs, or of both
_QUEUES = {name: kind for name, kind in KINDS.items() if name not in GPU_KINDS}
ENGINES = tuple(
    sorted(
        name
        for name, kind in _QUEUES.items()
        if (kind.at_zero == "nothing" and not kind.repeats_engines) or name == "ray_serve"
    )
)
GATEWAYS = tuple(sorted(_QUEUES))
PAGES_OF_GPUS = tuple(sorted({*GPU_KINDS, OWN}))


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    close = difflib.get_close_matches(word, list(known), n=1)
    return close[0] if close else None


def _one_of(kinds: tuple[str, ...], hint: str) -> Scalar:
    def read(value: Any) -> str:
        if isinstance(value, str) and value in kinds:
            return value
        meant = did_you_mean(value.lower(), kinds) if isinstance(value, str) else None
        is_gpus = isinstance(value, str) and value in GPU_KINDS
        hints = f" ({hint})" if hint and is_gpus else f" (did you mean {meant}?)" if meant else ""
        raise refused(f"must be one of {', '.join(kinds)}{hints}")

    return Scalar(read, str, {"title": "kind", "type": "string", "enum": list(kinds)})


ENGINE = _one_of(ENGINES, "its pages go under gpus")
GATEWAY_KIND = _one_of(GATEWAYS, "must see requests")
KIND = _one_of(tuple(sorted(KINDS)), "")
