"""What a process does to stay small, before it imports anything and once it runs: for commands beside somebody else's
work.

Worked example: after `stay_small()` an `import structlog` brings no `rich`, and `import numpy` begins no threads.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_DONTNEED = 4  # madvise(2), MADV_DONTNEED on Linux


def stay_small() -> None:
    """For the whole process, and too late for what is imported already."""
    # OpenBLAS makes a thread and its buffers for each core of the node; nothing here multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # structlog prints tracebacks with rich where it finds it: 4 MB, for colours that no log of a pod has. None is
    # Python's own way to say that a module is not to be had.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]


def let_go_of_code() -> None:
    """Give back the machine code that only starting needed: what is needed again comes back from its file by itself.

    The kernel maps code in pieces around what is touched, and larger ones where a file has just been written: 20 to 27
    MB of libraries, of which a command that runs touches half. Only mappings that are code and a file's are let go:
    nobody has written to those. Where there is no /proc or no madvise, nothing happens.
    """
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
        madvise = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in maps.splitlines():
        span, permissions, _, _, _, *file = line.split(maxsplit=5)
        if permissions == "r-xp" and file and file[0].startswith("/"):
            start, end = (int(address, 16) for address in span.split("-"))
            madvise(start, end - start, _DONTNEED)
