"""Measures what a scrape costs with many targets in one process, and how long a probe waits meanwhile.

`python benchmarks/many.py [--quick] [--targets 20000 --interval 10]`. Linux only. The engines' metrics are served as in
beside_prometheus.py, whose `serve` is the third process.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import perf_counter, sleep
from typing import Any, NamedTuple
from urllib.request import urlopen

import numpy as np
from beside_prometheus import PODS, address, cpu_seconds, number_at, serving
from daemon import answers_after, free_port, started
from report import show

TITLE = "Many targets"
ABOUT = """
Workloads of 4 pods, each an engine with 30 KiB of metrics whose values all change, in one daemon; measured over three
intervals, and over 30 s at least, after every target was scraped once. "Skipped" and "late" are the daemon's own
counters (`tidegate_scrapes_skipped_total`, `tidegate_scrapes_late_total`: begun a tenth of the interval late). The
probe is a `GET /livez` every 10 ms on one connection, for another 30 s. Server, probe and daemon share this machine.
Repeat with `python benchmarks/many.py`.
"""

FLEETS = ((100, 1.0), (2_000, 1.0), (20_000, 10.0))
WINDOW_S = 30.0
ADDRESSES = 20  # a server has 28,000 connections from one address
PROBE_S = 0.01
COUNTERS = ("tidegate_scrapes_skipped_total", "tidegate_scrapes_late_total")


class Moment(NamedTuple):
    """cpu_s: of the daemon so far. served: responses so far. skipped, late: the daemon's counters."""

    at: float
    cpu_s: float
    served: int
    skipped: int
    late: int


def moment(pid: int, http: str, count: str) -> Moment:
    counted = dict.fromkeys(COUNTERS, 0.0)
    query = "&".join(f"name[]={name}" for name in COUNTERS)
    with urlopen(f"{http}/metrics?{query}", timeout=60.0) as response:
        for line in response.read().decode().splitlines():
            if line.startswith(COUNTERS):
                counted[line.partition("{")[0].partition(" ")[0]] += float(line.rpartition(" ")[2])
    return Moment(perf_counter(), cpu_seconds(pid), number_at(count), *(int(counted[name]) for name in COUNTERS))


@contextmanager
def probing(port: int) -> Iterator[list[float]]:
    """Seconds that each probe has waited, while the context is open."""
    waited: list[float] = []
    over = Event()

    def probe() -> None:
        connection = HTTPConnection("127.0.0.1", port, timeout=60.0)
        while not over.wait(PROBE_S):
            begun = perf_counter()
            connection.request("GET", "/livez")
            connection.getresponse().read()
            waited.append(perf_counter() - begun)
        connection.close()

    thread = Thread(target=probe)
    thread.start()
    try:
        yield waited
    finally:
        over.set()
        thread.join()


def configuration(targets: int, interval_s: float, port: int, http: int, grpc: int) -> dict[str, Any]:
    urls = [f"http://{address(number % ADDRESSES)}:{port}/{number}" for number in range(targets)]
    return {
        "listen": {"http": f"127.0.0.1:{http}", "grpc": f"127.0.0.1:{grpc}"},
        "log": {"level": "error"},
        "scrape": {"interval": f"{interval_s:g}s"},
        "workloads": [
            {"namespace": "b", "name": f"w{first}", "engine": "vllm", "pods": {"urls": urls[first : first + PODS]}}
            for first in range(0, targets, PODS)
        ],
    }


def measured(targets: int, interval_s: float) -> dict[str, Any]:
    with serving("engine", ADDRESSES) as port, TemporaryDirectory() as folder:
        http, count = free_port(), f"http://{address(0)}:{port}/count"
        file = Path(folder, "config.yaml")
        config = configuration(targets, interval_s, port, http, free_port())
        file.write_text(json.dumps(config, separators=(",", ":")))  # JSON is valid YAML; at most 1 MiB is read
        with started([sys.executable, "-m", "scaler", "run", "-c", str(file)], dict(os.environ)) as process:
            base = f"http://127.0.0.1:{http}"
            answers_after(f"{base}/readyz", process)
            while number_at(count) < targets:
                sleep(1.0)
            sleep(2.0 * interval_s)
            before = moment(process.pid, base, count)
            sleep(max(WINDOW_S, 3.0 * interval_s))
            after = moment(process.pid, base, count)
            with probing(http) as waited:
                sleep(WINDOW_S)
            status = Path(f"/proc/{process.pid}/status").read_text()
    passed_s, scrapes = after.at - before.at, after.served - before.served
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return {
        "targets": f"{targets:,} at {interval_s:g} s",
        "ms of CPU per scrape": 1e3 * (after.cpu_s - before.cpu_s) / scrapes,
        "% of a core": 100.0 * (after.cpu_s - before.cpu_s) / passed_s,
        "% of scrapes made": 100.0 * scrapes * interval_s / (targets * passed_s),
        "skipped": after.skipped - before.skipped,
        "late": after.late - before.late,
        "MiB resident": resident / 1024,
        "probe p99, ms": 1e3 * float(np.quantile(waited, 0.99)),
        "probe most, ms": 1e3 * max(waited),
    }


def run(quick: bool = False, fleets: tuple[tuple[int, float], ...] = FLEETS) -> list[dict[str, Any]]:
    # The server has a connection for each target.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rows = [measured(*fleet) for fleet in (fleets[:2] if quick else fleets)]
    least = rows[0]["ms of CPU per scrape"]
    return [{**row, "CPU, of the first": row["ms of CPU per scrape"] / least} for row in rows]


def option(name: str, otherwise: str) -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else otherwise


if __name__ == "__main__":
    if "--targets" in sys.argv:
        show(run(fleets=((int(option("--targets", "")), float(option("--interval", "1"))),)))
    else:
        show(run("--quick" in sys.argv))
