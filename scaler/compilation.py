"""Loads the kernels of the daemon, and reports which of them had to be compiled.

`python -m scaler.compilation` fills the cache of an image (see the Dockerfile). It imports what the daemon imports, and
again in a new process, and fails if anything was compiled there: an image with an unused cache is not built.

If nothing is cached, a second process compiles half of the kernels, and this one takes those from the cache.

Worked example: `load()` with an empty cache is `Report(compiled=36, cached=0, seconds=13.9)`, and the next time
`Report(compiled=0, cached=36, seconds=0.6)`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from time import perf_counter
from typing import NamedTuple

# 0.4 s: it shows whether there is a cache. The halves take 11 s each. No kernel is in both.
SMALLEST = "scaler.policy.attainment"
HALF = (
    "scaler.policy.kernel",
    "scaler.signals.slot_sums",
    "scaler.signals.usage",
    "scaler.policy.sharing",
    "scaler.signals.smoothing",
    "scaler.policy.constraints",
)
OTHER_HALF = ("exporter.textformat.scanner", "scaler.policy.size_signals")
WAIT_TIMES = 2.0  # as long as this half took: a second process that is slower is not waited for


class CompileReport(NamedTuple):
    """The result of loading. seconds: wall-clock time, imports included."""

    compiled: int
    cached: int
    seconds: float


def load() -> CompileReport:
    """Import everything compiled that the daemon needs. Takes seconds, or minutes if a busy machine has to compile."""
    began = perf_counter()
    jit = import_module("exporter.jit")
    import_module(SMALLEST)
    if not jit.loaded()[-1].cached and _is_writable(jit.loaded()[-1].folder) and _cores() > 1:
        compile_in_two(HALF, OTHER_HALF)
    import_module("scaler.engine.loop")
    kernels = jit.loaded()
    cached = sum(each.cached for each in kernels)
    return CompileReport(len(kernels) - cached, cached, perf_counter() - began)


def compile_in_two(here: Sequence[str], there: Sequence[str]) -> None:
    """Imports the modules `here`, while a second process imports those `there`, so that the cache has their kernels.

    A process that fails or is too slow costs nothing but its half of the time: the modules are compiled later.
    """
    began = perf_counter()
    command = [sys.executable, "-c", f"import gc; gc.disable(); import {', '.join(there)}"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        other = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
    except OSError:  # no process may be started, or there is no memory for one
        return
    with other:
        try:
            for module in here:
                import_module(module)
            other.wait(WAIT_TIMES * (perf_counter() - began))
        except subprocess.TimeoutExpired:
            pass
        finally:
            other.kill()


def _is_writable(folder: str | None) -> bool:
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return folder is not None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
