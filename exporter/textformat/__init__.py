r"""Parses metrics responses, Prometheus text 0.0.4 and OpenMetrics 1.0, line by line.

A bad line costs that line and is counted with its reason; no response raises an exception. `parse` and `PlainScanner`
are plain Python. `Scanner` does the same with numba, which it imports (hence the lazy attribute: `tidegate read` and
`tidegate export` do not pay for it).

Worked example: `parse(b'queue_depth{queue="a"} 3\n')` has `values == [3.0]` and one series, named `queue_depth`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .parser import MAX_DROPPED, Layout, Page, PlainScanner, Rest, TooManySeries, parse
from .selection import Selection

if TYPE_CHECKING:
    from .scanner import Scanner

__all__ = [
    "MAX_DROPPED", "Layout", "Page", "PlainScanner", "Rest", "Scanner", "Selection", "TooManySeries", "parse",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "Scanner":
        from .scanner import Scanner  # noqa: PLC0415 - imports numba

        return Scanner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
