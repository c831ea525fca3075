"""How fast a page is read: ours with numba, ours without, and prometheus-client's parser, on the same page.

`python benchmarks/textformat.py [--quick]`
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from itertools import cycle
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from report import show
from timing import seconds

from exporter.textformat import PlainScanner, Scanner, parse

TITLE = "Reading a page"
ABOUT = """
From bytes to series and values, one process, one thread. The small page is what a dcgm-exporter prints for 8 GPUs and
30 fields with pods attached; the large one, about 8 MiB, is an exporter of everything. "Repeat" is the daemon's usual
case: the same series as the last time with new values. "First sight" is a new reader for each page; "all labels"
reads every label as well. Both pages are made by the benchmark. MB are 10^6 bytes, of the median. Repeat with
`python benchmarks/textformat.py`.
"""

GPUS, FIELDS = 8, 30
HUGE_SERIES = 60_000


def dcgm_page(chance: random.Random, gpus: int = GPUS, fields: int = FIELDS) -> bytes:
    """A dcgm-exporter page: integers, ratios with six digits, and a counter or two in the billions."""
    lines = []
    for field in range(fields):
        name = f"DCGM_FI_DEV_FIELD_{field:02d}"
        kind = "counter" if field % 10 == 0 else "gauge"
        lines += [f"# HELP {name} What field {field} means (in its unit).", f"# TYPE {name} {kind}"]
        for gpu in range(gpus):
            value = [chance.randrange(100), f"{chance.random():.6f}", chance.randrange(10**11)][field % 3]
            lines.append(
                f'{name}{{gpu="{gpu}",UUID="GPU-c4529c8d-69c4-b61d-e0bc-7b24600960{gpu:02d}",'
                f'pci_bus_id="00000000:{gpu:02X}:00.0",device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",'
                f'Hostname="gpu-node-1",DCGM_FI_DRIVER_VERSION="580.105.08",container="main",namespace="inference",'
                f'pod="chat-7c9d8f6b5-{gpu}xk2p"}} {value}'
            )
    return ("\n".join(lines) + "\n").encode()


def huge_page(chance: random.Random, series: int = HUGE_SERIES) -> bytes:
    """About 8 MiB, as an exporter of everything prints."""
    rows = (
        f'http_request_duration_seconds_bucket{{service="service-{i % 500}",method="GET",path="/api/v1/items/{i}",'
        f'code="200",le="{i % 11}",node="node-{i % 64}"}} {chance.randrange(10**6)}'
        for i in range(series)
    )
    return ("# TYPE http_request_duration_seconds histogram\n" + "\n".join(rows) + "\n").encode()


def prometheus_client(page: bytes) -> list[Any]:
    return list(text_string_to_metric_families(page.decode()))


def selecting(page: bytes) -> Any:
    """First sight as it is lived: scan, then read the labels of every series."""
    layout = Scanner().scan(page).layout
    return [layout.read(index) for index in range(len(layout))]


def run(quick: bool = False) -> list[dict[str, Any]]:
    chance = random.Random(1)
    pages = [dcgm_page(chance) for _ in range(8)]
    huge = [huge_page(chance) for _ in range(2)]
    cases: list[tuple[str, str, Callable[[bytes], Any], list[bytes]]] = [
        ("8 GPUs, repeat", "ours, numba", Scanner().scan, pages),
        ("8 GPUs, repeat", "ours, plain", PlainScanner().scan, pages),
        ("8 GPUs, repeat", "prometheus-client", prometheus_client, pages),
        ("8 GPUs, first sight", "ours, numba", lambda page: Scanner().scan(page), pages),
        ("8 GPUs, first sight, all labels", "ours, numba", selecting, pages),
        ("8 GPUs, first sight", "ours, plain", parse, pages),
        ("8 GPUs, first sight", "prometheus-client", prometheus_client, pages),
        (f"{HUGE_SERIES:,} series, repeat", "ours, numba", Scanner().scan, huge),
        (f"{HUGE_SERIES:,} series, first sight", "ours, numba", lambda page: Scanner().scan(page), huge),
        (f"{HUGE_SERIES:,} series, first sight", "ours, plain", parse, huge),
    ]
    return [row(case, reader, read, pool) for case, reader, read, pool in cases if not (quick and pool is huge)]


def row(case: str, reader: str, read: Callable[[bytes], Any], pages: list[bytes]) -> dict[str, Any]:
    for page in pages:
        read(page)
    turn = cycle(pages)
    spent, size = seconds(lambda: read(next(turn)), rounds=5, round_s=0.05), len(pages[0])
    return {
        "page": case,
        "reader": reader,
        "bytes": size,
        "µs per page": spent.times(1e6),
        "MB per second": size / spent.median / 1e6,
    }


if __name__ == "__main__":
    show(run("--quick" in sys.argv))
