"""Measures a daemon beside a Prometheus that scrapes the same targets: CPU per scrape, memory, and what each misses.

`python benchmarks/beside_prometheus.py [--quick] [--targets 2000]`. Needs the program `prometheus` (Debian: apt install
prometheus) and Linux. As a script with the argument `serve` this file is the third process, which serves the metrics.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any
from urllib.request import urlopen

from daemon import answers_after, free_port, started
from report import show

TITLE = "Beside Prometheus"
ABOUT = """
The same targets scraped each second by the daemon and then by Prometheus (Debian's), one after the other, in one run:
each has its own addresses on one server, keeps its connections, and gets values that all change with each response. The
engine's response has about 30 KiB (the families that are read, and fifteen histograms), dcgm-exporter's 73 KB (8 GPUs
with 30 fields). CPU is user and system time of the process per scrape that the server answered; memory is resident
(VmRSS). Prometheus stores every series; the daemon reads what it knows, decides and publishes. Both are measured after
all targets were scraped for ten seconds. Repeat with `python benchmarks/beside_prometheus.py`.
"""

INTERVAL_S = 1.0
WARM_S = 10.0
PODS = 4
VARIANTS = 16  # responses with other values; more of them differ in nothing that a reader sees
PROMETHEUS = """\
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
  - job_name: bench
    static_configs: [{targets: %s}]
"""


def engine_page(turn: int) -> bytes:
    """About 30 KiB, as of one vLLM engine."""
    labels = 'model_name="m",engine="0"'
    lines = [
        f"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{{{labels}}} {turn % 5}.0",
        f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{{{labels}}} {8 + turn % 7}.0",
        f"# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{{{labels}}} {0.3 + turn / 100}",
    ]
    lines += [
        f"# TYPE vllm:{name} counter\nvllm:{name}_total{{{labels}}} {1e6 + 517 * turn}"
        for name in ("prompt_tokens", "generation_tokens")
    ]
    lines.append(
        f'# TYPE vllm:request_success counter\nvllm:request_success_total{{{labels},finished_reason="stop"}} {turn}.0'
    )
    for family in range(15):
        name = f"vllm:histogram_{family:02d}_seconds"
        lines.append(f"# TYPE {name} histogram")
        lines += [
            f'{name}_bucket{{{labels},le="{2.0**edge}"}} {1000 * family + 17 * edge * edge + turn}.0'
            for edge in range(-8, 17)
        ]
        lines.append(f"{name}_count{{{labels}}} {9000 + turn}.0\n{name}_sum{{{labels}}} {1.7 * (9000 + turn)}")
    return ("\n".join(lines) + "\n").encode()


def gpu_page(turn: int) -> bytes:
    """About 73 KB, as of dcgm-exporter on a node with 8 GPUs."""
    fields = ["DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE"]
    fields += ["DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE"]
    fields += [f"DCGM_FI_DEV_OTHER_{number:02d}" for number in range(24)]
    lines = []
    for number, field in enumerate(fields):
        lines.append(f"# HELP {field} A field of DCGM.\n# TYPE {field} gauge")
        lines += [
            f'{field}{{gpu="{gpu}",UUID="GPU-0000{gpu}-1111-2222-3333-444455556666",pci_bus_id="00000000:0{gpu}:00.0",'
            f'device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-node-17",'
            f'DCGM_FI_DRIVER_VERSION="550.90.07",container="server",namespace="bench",pod="w0-5d9c7b8f6-{gpu}"}} '
            f"{(0.01 * turn if number in range(1, 4) else 10 * number + turn):g}"
            for gpu in range(8)
        ]
    return ("\n".join(lines) + "\n").encode()


PAGES = {"engine": engine_page, "dcgm": gpu_page}


class Answers(asyncio.Protocol):
    """Serves the next response on every GET, and the number of all of them at /count."""

    served = 0
    bodies = cycle([b""])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._buffer = transport, b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            request, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            if request.startswith(b"GET /count"):
                body = str(Answers.served).encode()
            else:
                Answers.served += 1
                body = next(Answers.bodies)
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %d\r\n\r\n" % len(
                body
            )
            self._transport.write(head + body)  # type: ignore[attr-defined]


async def serve(port: int, page: str, addresses: int) -> None:
    Answers.bodies = cycle([PAGES[page](turn) for turn in range(VARIANTS)])
    hosts = [address(number) for number in range(addresses)]
    server = await asyncio.get_running_loop().create_server(Answers, hosts, port, backlog=1024)
    await server.serve_forever()


def address(number: int) -> str:
    """All of 127.0.0.0/8 is loopback (Linux)."""
    return f"127.0.{1 + number // 250}.{1 + number % 250}"


@dataclass(frozen=True, slots=True)
class Cost:
    """cpu_ms: per scrape. core: of one core, a ratio. scraped: of what the interval asks for, a ratio."""

    cpu_ms: float
    core: float
    scraped: float
    resident_mib: float


def measured(process: subprocess.Popen[bytes], count: str, targets: int, window_s: float) -> Cost:
    sleep(WARM_S)
    before, served = cpu_seconds(process.pid), number_at(count)
    sleep(window_s)
    spent, scrapes = cpu_seconds(process.pid) - before, number_at(count) - served
    resident = int(
        next(line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if "VmRSS" in line).split()[
            1
        ]
    )
    return Cost(1e3 * spent / scrapes, spent / window_s, scrapes * INTERVAL_S / (targets * window_s), resident / 1024)


def number_at(url: str) -> int:
    with urlopen(url, timeout=10.0) as response:
        return int(response.read())


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(page: str, addresses: int) -> Iterator[int]:
    port = free_port()
    with started([sys.executable, __file__, "serve", str(port), page, str(addresses)], dict(os.environ)) as process:
        answers_after(f"http://{address(0)}:{port}/count", process)
        yield port


def of_tidegate(page: str, port: int, targets: int, window_s: float) -> Cost:
    with TemporaryDirectory() as folder:
        http, grpc = free_port(), free_port()
        urls = [f"http://{address(number)}:{port}/metrics" for number in range(targets)]
        listen = {"http": f"127.0.0.1:{http}", "grpc": f"127.0.0.1:{grpc}"}
        config: dict[str, Any] = {"listen": listen, "log": {"level": "error"}, "scrape": {"interval": "1s"}}
        if page == "dcgm":
            config["gpus"] = [{"urls": urls}]
            config["workloads"] = [
                {
                    "namespace": "bench",
                    "name": "w0",
                    "pod_pattern": "w0-*",
                    "replicas": {"min": 1},
                    "objectives": {"gpu_engine": 0.8},
                }
            ]
        else:
            config["workloads"] = [
                {
                    "namespace": "bench",
                    "name": f"w{first}",
                    "engine": "vllm",
                    "pods": {"urls": urls[first : first + PODS]},
                }
                for first in range(0, targets, PODS)
            ]
        file = Path(folder, "config.yaml")
        file.write_text(json.dumps(config))  # JSON is valid YAML
        with started([sys.executable, "-m", "scaler", "run", "-c", str(file)], dict(os.environ)) as process:
            answers_after(f"http://127.0.0.1:{http}/readyz", process)
            return measured(process, f"http://{address(0)}:{port}/count", targets, window_s)


def of_prometheus(program: str, port: int, targets: int, window_s: float) -> Cost:
    with TemporaryDirectory() as folder:
        own = free_port()
        file = Path(folder, "prometheus.yml")
        file.write_text(PROMETHEUS % json.dumps([f"{address(number)}:{port}" for number in range(targets)]))
        command = [program, f"--config.file={file}", f"--storage.tsdb.path={folder}/tsdb"]
        command += [f"--web.listen-address=127.0.0.1:{own}", "--log.level=error"]
        with started(command, dict(os.environ)) as process:
            answers_after(f"http://127.0.0.1:{own}/-/ready", process)
            return measured(process, f"http://{address(0)}:{port}/count", targets, window_s)


def run(quick: bool = False, targets: int = 100) -> list[dict[str, Any]]:
    program = shutil.which("prometheus")
    window_s = 10.0 if quick else 30.0
    rows = []
    for page in ("engine",) if quick else PAGES:
        with serving(page, targets) as port:
            costs = {"tidegate": of_tidegate(page, port, targets, window_s)}
            if program is not None:
                costs["prometheus"] = of_prometheus(program, port, targets, window_s)
        base = costs.get("prometheus")
        rows += [
            {
                "targets": f"{targets}, {page}",
                "program": name,
                "ms of CPU per scrape": cost.cpu_ms,
                "of Prometheus": cost.cpu_ms / base.cpu_ms if base else None,
                "% of a core": 100.0 * cost.core,
                "% of scrapes made": 100.0 * cost.scraped,
                "MiB resident": cost.resident_mib,
            }
            for name, cost in costs.items()
        ]
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
    else:
        many = int(sys.argv[sys.argv.index("--targets") + 1]) if "--targets" in sys.argv else 100
        show(run("--quick" in sys.argv, many))
