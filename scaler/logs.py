"""Logs are events with fields: a constant message, variable fields, one line per change of state."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable

import structlog


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
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def say_warnings(problems: Iterable[object]) -> None:
    """What is allowed and probably not meant."""
    log = structlog.get_logger()
    for problem in problems:
        log.warning("configuration", problem=str(problem))
