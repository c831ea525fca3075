"""Logs are events with fields: a constant message, variable fields, one line per change of state."""

from __future__ import annotations

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
    """What is allowed and probably not meant."""
    log = structlog.get_logger()
    for problem in problems:
        log.warning("configuration", problem=str(problem))
