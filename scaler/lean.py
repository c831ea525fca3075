"""What a process does to stay small, before it imports anything: for commands that run beside somebody else's work.

Worked example: after `stay_small()` an `import structlog` brings no `rich`, and `import numpy` begins no threads.
"""

from __future__ import annotations

import os
import sys


def stay_small() -> None:
    """For the whole process, and too late for what is imported already."""
    # OpenBLAS makes a thread and its buffers for each core of the node; nothing here multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # structlog prints tracebacks with rich where it finds it: 4 MB, for colours that no log of a pod has. None is
    # Python's own way to say that a module is not to be had.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
