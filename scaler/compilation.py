"""Loads the kernels of the daemon, and reports which of them had to be compiled.

`python -m scaler.compilation` fills the cache of an image (see the Dockerfile). It imports what the daemon imports, and
again in a new process, and fails if anything was compiled there: an image with an unused cache is not built.

Worked example: `load()` with an empty cache is `Report(compiled=28, cached=0, seconds=17.3)`, and the next time
`Report(compiled=0, cached=28, seconds=0.6)`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from time import perf_counter
from typing import NamedTuple


class CompileReport(NamedTuple):
    """The result of loading. seconds: wall-clock time, imports included."""

    compiled: int
    cached: int
    seconds: float


def load() -> CompileReport:
    """Import everything compiled that the daemon needs. Takes seconds, or minutes if a busy machine has to compile."""
    began = perf_counter()
    import_module("scaler.engine.loop")
    kernels = import_module("exporter.jit").loaded()
    cached = sum(each.cached for each in kernels)
    return CompileReport(len(kernels) - cached, cached, perf_counter() - began)


def settings() -> dict[str, str]:
    """Where machine code is looked for, and for which CPU; "host" is the one it runs on."""
    return {
        "cache": os.environ.get("NUMBA_CACHE_DIR") or "beside the sources",
        "cpu": os.environ.get("NUMBA_CPU_NAME") or "host",
    }


def main(arguments: list[str]) -> int:
    report = load()
    print(f"kernels: compiled {report.compiled}, cached {report.cached}, {report.seconds:.1f} s", flush=True)  # noqa: T201
    if "--cached" in arguments:
        return 1 if report.compiled else 0
    again = [sys.executable, "-m", "scaler.compilation", "--cached"]
    return subprocess.run(again, check=False).returncode  # noqa: S603 - this module


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
