"""Starts a real daemon as a process, and a third process with the engines' targets that it scrapes.

    with running(workloads=100, pods=2) as daemon:
        daemon.grpc        # "127.0.0.1:43211"
        daemon.ready_s     # seconds from its start to the first 200 of /readyz

Everything listens on loopback, on ports that were free a moment ago. As a script this file is the third process: it
serves one engine's metrics on the given port.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import URLError
from urllib.request import urlopen

from aiohttp import web

ROOT = Path(__file__).parent.parent
PATIENCE_S = 180.0
POLL_S = 0.01
NAMESPACE = "bench"

GAUGES = """\
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{model_name="m",engine="0"} 3
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m",engine="0"} 12
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{model_name="m",engine="0"} 0.4
# TYPE vllm:request_success_total counter
vllm:request_success_total{model_name="m",engine="0",finished_reason="stop"} 789
"""


def page() -> bytes:
    """An engine's metrics of a usual size, about 30 KiB: the four relevant families and fifteen histograms."""
    lines = [GAUGES]
    for family in range(15):
        name = f"vllm:histogram_{family:02d}_seconds"
        lines.append(f"# TYPE {name} histogram\n")
        lines += [
            f'{name}_bucket{{model_name="m",engine="0",le="{2.0**edge}"}} {edge * 17}\n' for edge in range(-8, 17)
        ]
    return "".join(lines).encode()


@dataclass(frozen=True, slots=True)
class Running:
    """listening_s, ready_s: seconds from its start to the first response of /livez and the first 200 of /readyz."""

    pid: int
    http: str
    grpc: str
    listening_s: float
    ready_s: float

    def resident_mib(self) -> float:
        """Resident memory (Linux)."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024


@contextmanager
def running(*, workloads: int, pods: int = 1, numba_cache: str | None = None) -> Iterator[Running]:
    """`workloads` named w0, w1, … with `pods` targets each; compiled kernels are cached in `numba_cache`."""
    environment = {**os.environ, **({"NUMBA_CACHE_DIR": numba_cache} if numba_cache else {})}
    with TemporaryDirectory() as folder, pages() as address:
        http, grpc = free_port(), free_port()
        config = Path(folder, "config.yaml")
        config.write_text(configuration(workloads, pods, address, http, grpc))
        command = [sys.executable, "-m", "scaler", "run", "-c", str(config)]
        begun = time.perf_counter()
        with started(command, environment) as process:
            base = f"http://127.0.0.1:{http}"
            listening_s = answers_after(base + "/livez", process) - begun
            ready_s = answers_after(base + "/readyz", process) - begun
            yield Running(process.pid, base, f"127.0.0.1:{grpc}", listening_s, ready_s)


def configuration(workloads: int, pods: int, address: str, http: int, grpc: int) -> str:
    lines = [f'listen: {{http: "127.0.0.1:{http}", grpc: "127.0.0.1:{grpc}"}}', "log: {level: error}", "workloads:"]
    for number in range(workloads):
        urls = ", ".join(f'"http://{address}/{number}-{pod}/metrics"' for pod in range(pods))
        lines.append(f"  - {{namespace: {NAMESPACE}, name: w{number}, engine: vllm, pods: {{urls: [{urls}]}}}}")
    return "\n".join(lines) + "\n"


@contextmanager
def started(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, cwd=ROOT, env=environment) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


@contextmanager
def pages() -> Iterator[str]:
    """host:port of a process that serves an engine's metrics at every path."""
    port = free_port()
    with started([sys.executable, __file__, str(port)], dict(os.environ)) as process:
        answers_after(f"http://127.0.0.1:{port}/", process)
        yield f"127.0.0.1:{port}"


def answers_after(url: str, process: subprocess.Popen[bytes]) -> float:
    """`perf_counter()` at the URL's first 200."""
    give_up = time.perf_counter() + PATIENCE_S
    while time.perf_counter() < give_up and process.poll() is None:
        try:
            with urlopen(url, timeout=1.0):
                return time.perf_counter()
        except (URLError, OSError):  # not listening yet, or 503: not ready yet
            time.sleep(POLL_S)
    raise RuntimeError(f"{url} does not answer")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def serve_pages(port: int) -> None:
    body = page()

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


if __name__ == "__main__":
    serve_pages(int(sys.argv[1]))
