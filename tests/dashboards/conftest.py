"""Two real Prometheus servers: one scrapes a running `tidegate demo`, the other a target with metrics that the demo
lacks.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import requests

from tests.dashboards.rare_metrics import page
from tests.deploy.shared import REQUIRE_TOOLS, module
from tests.fakes.ports import free_ports

ALERTS = Path(__file__).parents[2] / "dashboards/alerts.yaml"
SPEED = 120.0  # a day of the demo, an hour, in half a minute of the wall
PATIENCE_S = 300.0  # never reached: only shows what hung
POLL_S = 0.25


def wait_for(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come within {PATIENCE_S:.0f} s"
        time.sleep(POLL_S)


class Prometheus:
    """A real Prometheus that scrapes one target each second, configured like the chart's monitors: with honor_labels,
    and with the labels of the scraped pod.
    """

    def __init__(self, folder, program, target):
        config, [port] = folder / "prometheus.yml", free_ports(1)
        pod_labels = {"namespace": "tidegate", "pod": "tidegate-0", "service": "tidegate"}
        job = {
            "job_name": "tidegate", "honor_labels": True,
            "static_configs": [{"targets": [f"127.0.0.1:{target}"], "labels": pod_labels}],
        }  # fmt: skip
        settings = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [job],
        }
        config.write_text(json.dumps(settings))  # JSON is valid YAML
        self.url, self.began = f"http://127.0.0.1:{port}", time.time()
        self._process = subprocess.Popen(
            [program, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
             f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def ask(self, path, **query):
        """The `data` of a response of its API; a rejected query fails with Prometheus' own message."""
        answer = requests.get(f"{self.url}/api/v1/{path}", params=query, timeout=30).json()
        assert answer["status"] == "success", f"{answer.get('error')}: {query}"
        return answer["data"]

    def instant(self, query, at=None):
        return self.ask("query", query=query, **({} if at is None else {"time": at}))["result"]

    def over_time(self, query):
        """From its start until now, second by second."""
        return self.ask("query_range", query=query, start=self.began, end=time.time(), step=1)["result"]

    def ready(self):
        """Whether it is ready. Before that, every response is a text instead of JSON."""
        try:
            return requests.get(f"{self.url}/-/ready", timeout=30).ok
        except requests.ConnectionError:
            return False

    def has_data(self, query):
        return bool(self.instant(query))

    def stop(self):
        self._process.terminate()
        self._process.wait()


@pytest.fixture(scope="module")
def program():
    path = shutil.which("prometheus")
    if path is not None:
        return path
    reason = "prometheus is not installed (Debian: apt install prometheus)"
    if os.environ.get(REQUIRE_TOOLS) == "1":
        pytest.fail(f"{reason}, and {REQUIRE_TOOLS}=1 asks for it")
    return pytest.skip(reason)


@pytest.fixture(scope="module")
def pages():
    """The port of a server with one target."""
    read = page()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = read()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, name="page", daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def demo():
    """The port of a demo that repeats its day."""
    [port] = free_ports(1)
    process = subprocess.Popen(
        [sys.executable, "-m", "scaler", "demo", "-o", "json", "--speed", str(SPEED), "--duration", "0",
         "--port", str(port)],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    yield port
    process.terminate()
    process.wait()


@pytest.fixture(scope="module")
def watched(program, demo, pages, tmp_path_factory):
    """{"demo": …, "pages": …}: each Prometheus once it has all data: the demo asleep, awake and asleep again, the
    target scraped eight times.
    """
    found = {
        name: Prometheus(tmp_path_factory.mktemp(name), program, port)
        for name, port in (("demo", demo), ("pages", pages))
    }
    try:
        for each in found.values():
            wait_for(each.ready, "Prometheus")
        wait_for(lambda: found["pages"].has_data("count_over_time(tidegate_board_version[5m]) > 7"), "the target")
        wait_for(lambda: found["demo"].has_data("max_over_time(tidegate_replicas[5m]) > 2"), "a load in the demo")
        wait_for(lambda: found["demo"].has_data('tidegate_reason{reason="asleep"}'), "the demo's sleep")
        yield found
    finally:
        for each in found.values():
            each.stop()


@pytest.fixture(scope="module")
def grafana_build():
    module("grafana_foundation_sdk", "grafana-foundation-sdk")
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # the SDK's schema version is newer than every supported Grafana
        from dashboards import build  # noqa: PLC0415 - not where the SDK is missing
    return build
