"""Logs are events with fields: a constant message, variable fields, one line per change of state."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterable, MutableMapping
from typing import Any

import structlog

from exporter.model import printable


def configure(style: str, level: str) -> None:
    """`style`: auto, json or console. auto is console on a terminal, JSON elsewhere. Everything goes to stderr."""
    console = style == "console" or (style == "auto" and sys.stderr.isatty())
    renderer = structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *([_make_printable] if console else []),  # JSON escapes what is not
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def _make_printable(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """No value of others may move the cursor of a terminal; tracebacks keep their lines."""
    shown = {key: printable(value) for key, value in event.items() if isinstance(value, str) and key != "exception"}
    return {**event, **shown}


def say_warnings(problems: Iterable[object]) -> None:
    """Settings that are valid and probably not intended."""
    log = structlog.get_logger()
    for problem in problems:
        log.warning("configuration", problem=str(problem))


class Throttle:
    """Writes an event of which a client may cause any number: the first at once, then one line per period with a count.

    The fields of a line are those of the last event it counts. Needs a running event loop.

    Worked example: of 500 `add("malformed request", peer=...)` in one period two lines remain, the first with `count=1`
    and, when the period ends, one with `count=499`.
    """

    def __init__(self, log: Any, period_s: float = 60.0) -> None:
        self._log, self._period_s = log, period_s
        self._pending: dict[str, tuple[int, dict[str, Any]]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def add(self, event: str, **fields: Any) -> None:
        """event: a constant; what varies is in the fields. `level` is "warning" unless it is one of them."""
        if event in self._timers:
            self._pending[event] = (self._pending[event][0] + 1, fields)
        else:
            self._write(event, 1, fields)

    def flush(self) -> None:
        """Write what is counted and not yet written."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for event, (count, fields) in self._pending.items():
            if count:
                self._line(event, count, fields)
        self._pending.clear()

    def _write(self, event: str, count: int, fields: dict[str, Any]) -> None:
        self._line(event, count, fields)
        self._pending[event] = (0, {})
        self._timers[event] = asyncio.get_running_loop().call_later(self._period_s, self._period_ended, event)

    def _period_ended(self, event: str) -> None:
        del self._timers[event]
        count, fields = self._pending.pop(event)
        if count:
            self._write(event, count, fields)

    def _line(self, event: str, count: int, fields: dict[str, Any]) -> None:
        level = fields.get("level", "warning")
        more = {key: value for key, value in fields.items() if key != "level"}
        getattr(self._log, level)(event, count=count, **more)
