"""Keys from a terminal, without Enter. Where the input is no terminal there are never any.

Worked example: `with keys(sys.stdin) as pressed: pressed(2.0)` is "q" as soon as somebody types it, None after 2 s, and
"" as soon as the terminal is gone.
"""

from __future__ import annotations

import os
import select
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

_AT_ONCE = 64  # bytes: an arrow key is three of them, of which the first alone would be Esc


@contextmanager
def keys(source: TextIO) -> Iterator[Callable[[float], str | None]]:
    """The terminal is as it was afterwards."""
    if not source.isatty():
        yield _no_key
        return
    descriptor = source.fileno()
    before = termios.tcgetattr(descriptor)

    def pressed(patience_s: float) -> str | None:
        ready, _, _ = select.select([descriptor], [], [], patience_s)
        return _read(descriptor) if ready else None

    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        with suppress(termios.error):  # a terminal that is gone needs nothing any more
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _read(descriptor: int) -> str:
    """What has come. Not by the stream: what that reads ahead, nobody would wait for."""
    try:
        return os.read(descriptor, _AT_ONCE).decode(errors="replace")
    except OSError:  # EIO: the other side has hung up
        return ""


def _no_key(patience_s: float) -> str | None:
    time.sleep(patience_s)
    return None
