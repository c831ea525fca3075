"""Which kinds of page a configuration may name, as the catalog of quantities has them.

The catalog says how a page is read; a configuration only needs its usual port and path, and how many requests one
replica should hold. dcgm-exporter is a kind of page but no engine: nothing can be asked of it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from exporter.catalog import KINDS

from .scalars import Scalar, refused

GPUS = "dcgm"
GATEWAY = "epp"
ENGINES = tuple(sorted(kind for kind in KINDS if kind != GPUS))


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    close = difflib.get_close_matches(word, list(known), n=1)
    return close[0] if close else None


def _one_of(kinds: tuple[str, ...], hint: str) -> Scalar:
    def read(value: Any) -> str:
        if isinstance(value, str) and value in kinds:
            return value
        meant = did_you_mean(value.lower(), kinds) if isinstance(value, str) else None
        hints = f" ({hint})" if hint and value == GPUS else f" (did you mean {meant}?)" if meant else ""
        raise refused(f"must be one of {', '.join(kinds)}{hints}")

    return Scalar(read, str, {"title": "kind", "type": "string", "enum": list(kinds)})


ENGINE = _one_of(ENGINES, "its pages go under gpus")
KIND = _one_of((*ENGINES, GPUS), "")
