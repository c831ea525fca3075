"""One key from a terminal, without Enter. Where the input is no terminal there is never one.

Worked example: `with keys(sys.stdin) as pressed: pressed(2.0)` is "q" as soon as somebody types it, and None after 2 s.
"""

from __future__ import annotations

import select
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO


@contextmanager
def keys(source: TextIO) -> Iterator[Callable[[float], str | None]]:
    """The terminal is as it was afterwards."""
    if not source.isatty():
        yield _nobody
        return
    descriptor = source.fileno()
    before = termios.tcgetattr(descriptor)

    def pressed(patience_s: float) -> str | None:
        ready, _, _ = select.select([descriptor], [], [], patience_s)
        return source.read(1) if ready else None

    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _nobody(patience_s: float) -> str | None:
    time.sleep(patience_s)
    return None
