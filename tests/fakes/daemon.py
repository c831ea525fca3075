"""Runs the daemon as a process and reads its HTTP endpoints, or gives a control loop its context within a test."""

import asyncio
import json
import re
import signal
import subprocess
import time
from contextlib import contextmanager

import requests
from prometheus_client import CollectorRegistry

from exporter.sources.promql import Promql
from scaler.engine.context import LoopContext
from scaler.metrics import SelfMetrics

from .waiting import SOON_S, until
from .warm import WarmProcess

# A cold start compiles the kernels: about 15 s on two idle cores. Later starts are quick.
START_S = 180.0


class Tidegate:
    """A running daemon. http, grpc: its addresses."""

    def __init__(self, process, log):
        self.process, self._log = process, log
        ports = self._until_logged("listening")
        self.http, self.grpc = f"http://127.0.0.1:{ports['http']}", f"127.0.0.1:{ports['grpc']}"
        self._until_ready()

    def logged(self, event):
        return log_lines(self._log, event)

    async def get(self, path):
        return await asyncio.to_thread(requests.get, self.http + path, timeout=SOON_S)

    async def decision(self, namespace, name, trigger=""):
        """The Board's entry; None if there is none."""
        key = {"namespace": namespace, "name": name, "trigger": trigger}
        board = (await self.get("/api/v1/board")).json()
        return next((entry for entry in board["workloads"] if entry["workload"] == key), None)

    async def evidence(self, namespace, name):
        return (await self.decision(namespace, name))["evidence"]

    async def until(self, is_so, namespace, name):
        """Poll the Board's entry until `is_so(entry)`; returns it."""
        return await until(lambda: self.decision(namespace, name), lambda entry: entry is not None and is_so(entry))

    async def until_evidence(self, namespace, name, **wanted):
        """Wait until the evidence has these values; returns the whole entry."""

        def is_so(entry):
            return {key: entry["evidence"][key] for key in wanted} == wanted

        return await self.until(is_so, namespace, name)

    async def metric(self, series):
        """The value of one series of /metrics; None if there is no such series."""
        text = (await self.get("/metrics")).text
        found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
        return None if found is None else float(found[1])

    async def until_metric(self, series, wanted):
        await until(lambda: self.metric(series), lambda value: value == wanted)

    async def sweeps(self, number):
        """Wait until that many further sweeps have ended."""
        enough = await self._swept() + number
        await until(self._swept, lambda swept: swept >= enough)

    async def _swept(self):
        return await self.metric("tidegate_tick_duration_seconds_count")

    def _until_logged(self, event):
        return self._patiently(lambda: next(iter(self.logged(event)), None))

    def _until_ready(self):
        self._patiently(lambda: requests.get(self.http + "/readyz", timeout=SOON_S).ok)

    def _patiently(self, ask):
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            assert self.process.poll() is None, self._log.read_text(encoding="utf-8")
            if answer := ask():
                return answer
            time.sleep(0.05)
        raise AssertionError(self._log.read_text(encoding="utf-8"))


def log_lines(file, event):
    """The fields of all log lines of this event."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [fields for line in lines if line.startswith("{") and (fields := json.loads(line))["event"] == event]


def end(process):
    """Terminate the process and wait for its end; kill it after a timeout."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(SOON_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def running(config, log):
    """`tidegate run` with this configuration file and this log file until the block ends. It must exit cleanly."""
    with log.open("wb") as file:
        process = WarmProcess("scaler", "run", "-c", config, stderr=file)
    try:
        yield Tidegate(process, log)
    finally:
        end(process)
    text = log.read_text(encoding="utf-8")
    assert process.returncode == 0, text
    assert "raceback" not in text, text


def loop_context(clock, pages, publisher, **parts):
    """A context that ignores ticks and registries, unless `parts` names other ones."""
    usual = {
        "self_metrics": SelfMetrics(CollectorRegistry()),
        "on_tick": lambda now: None,
        "on_registry": lambda registry: None,
    }
    return LoopContext(clock=clock, pages=pages, promql=Promql(pages), publisher=publisher, **{**usual, **parts})
