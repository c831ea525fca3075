"""Measures everything and writes RESULTS.md beside this file, with the machine's data.

    make bench                  # or: python benchmarks/run.py [--quick]

Nothing is asserted: a benchmark that fails a build fails it on the day the machine is busy. `--quick` leaves out the
largest sizes and most of the rounds, and the file says so.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

import beside_prometheus
import cluster
import kernels
import many
import policy
import process
import push
import replay
import rpc
import state
import textformat
from report import table

HERE = Path(__file__).parent
CHAPTERS = (textformat, kernels, policy, replay, state, cluster, rpc, push, process, beside_prometheus, many)
LIBRARIES = ("numba", "numpy", "grpcio", "aiohttp", "prometheus-client", "protobuf")


def first_word_of(file: str, key: str) -> str:
    """The value of the first line `key : value`; "unknown" without such a file (it is Linux's)."""
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "unknown")


def gibibytes(kib: str) -> str:
    return f"{int(kib.split(maxsplit=1)[0]) / 2**20:.0f} GiB" if kib[:1].isdigit() else kib


def system() -> str:
    name = platform.freedesktop_os_release().get("PRETTY_NAME", "") if Path("/etc/os-release").exists() else ""
    return f"{name or platform.system()}, kernel {platform.release().split('-')[0]}, {platform.machine()}"


def commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=HERE, capture_output=True, text=True, check=True).stdout.strip()

    try:
        # This file's own output does not count as a change of the code.
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!RESULTS.md", "..")
        return git("rev-parse", "--short", "HEAD") + (" with changes that are not committed" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine() -> str:
    facts = {
        "processor": f"{first_word_of('/proc/cpuinfo', 'model name')}, {os.cpu_count()} logical cores",
        "memory": gibibytes(first_word_of("/proc/meminfo", "MemTotal")),
        "system": system(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "libraries": ", ".join(f"{name} {version(name)}" for name in LIBRARIES),
        "tidegate": f"{version('tidegate')}, commit {commit()}",
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "load before": f"{os.getloadavg()[0]:.1f} processes on average over a minute, without this one",
    }
    return "\n".join(f"- {name}: {fact}" for name, fact in facts.items())


HEAD = """\
# Benchmarks

Written by `make bench`{how}; every number was measured then, none is promised. Cells are the median of several
rounds, with the least and the most of them in brackets: a wide bracket is a busy machine.

{machine}
"""


def main(*, quick: bool) -> None:
    begun = perf_counter()
    parts = [HEAD.format(how=' with `ARGS="--quick"`' if quick else "", machine=machine())]
    for chapter in CHAPTERS:
        print(f"{chapter.TITLE} …", file=sys.stderr, flush=True)
        parts.append(f"## {chapter.TITLE}\n\n{chapter.ABOUT.strip()}\n\n{table(chapter.run(quick))}\n")
    parts.append(f"Everything took {perf_counter() - begun:.0f} s.\n")
    HERE.joinpath("RESULTS.md").write_text("\n".join(parts))


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--quick", action="store_true", help="leave out the largest sizes and most of the rounds")
    main(quick=options.parse_args().quick)
