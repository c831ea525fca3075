"""How fast a page is read: ours with numba, ours without, and prometheus-client's parser, on the same page.

The page is what a dcgm-exporter prints for 8 GPUs and 30 fields with pods attached, made here; the values change from
page to page and the series do not, which is what a repeat is. `python benchmarks/textformat.py` prints a table.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(Path(__file__).parent.parent))

from exporter.textformat import PlainScanner, Scanner, parse

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


def best_seconds(read: Callable[[bytes], Any], pages: list[bytes], rounds: int) -> float:
    """The shortest time for one page: noise only ever adds."""
    best = float("inf")
    for turn in range(rounds):
        page = pages[turn % len(pages)]
        start = time.perf_counter()
        read(page)
        best = min(best, time.perf_counter() - start)
    return best


def prometheus_client(page: bytes) -> list[Any]:
    return list(text_string_to_metric_families(page.decode()))


def selecting(page: bytes) -> Any:
    """First sight as it is lived: scan, then read the labels of every series."""
    return list(Scanner().scan(page).layout.series)


def run(rounds: int = 200) -> list[dict[str, Any]]:
    """A row per reader and situation: microseconds per page and megabytes (10**6) per second."""
    chance = random.Random(1)
    pages = [dcgm_page(chance) for _ in range(8)]
    huge = [huge_page(chance) for _ in range(2)]
    few, fewest = max(rounds // 10, 2), max(rounds // 100, 2)
    cases: list[tuple[str, str, Callable[[bytes], Any], list[bytes], int]] = [
        ("8 GPUs, repeat", "ours, numba", Scanner().scan, pages, rounds * 10),
        ("8 GPUs, repeat", "ours, plain", PlainScanner().scan, pages, rounds),
        ("8 GPUs, repeat", "prometheus-client", prometheus_client, pages, few),
        ("8 GPUs, first sight", "ours, numba", lambda page: Scanner().scan(page), pages, rounds),
        ("8 GPUs, first sight, all labels", "ours, numba", selecting, pages, rounds),
        ("8 GPUs, first sight", "ours, plain", parse, pages, few),
        ("8 GPUs, first sight", "prometheus-client", prometheus_client, pages, few),
        (f"{HUGE_SERIES} series, repeat", "ours, numba", Scanner().scan, huge, few),
        (f"{HUGE_SERIES} series, first sight", "ours, numba", lambda page: Scanner().scan(page), huge, few),
        (f"{HUGE_SERIES} series, first sight", "ours, plain", parse, huge, fewest),
    ]
    rows = []
    for case, reader, read, pool, count in cases:
        for page in pool:
            read(page)
        seconds = best_seconds(read, pool, count)
        size = len(pool[0])
        rows.append(
            {"case": case, "reader": reader, "bytes": size, "us": seconds * 1e6, "mb_per_s": size / seconds / 1e6}
        )
    return rows


def main() -> None:
    print(f"{'case':<34}{'reader':<20}{'bytes':>10}{'µs/page':>12}{'MB/s':>10}")
    for row in run():
        print(f"{row['case']:<34}{row['reader']:<20}{row['bytes']:>10}{row['us']:>12.1f}{row['mb_per_s']:>10.1f}")


if __name__ == "__main__":
    main()
