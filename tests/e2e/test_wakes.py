"""Requests wake workloads from zero through the interceptor of KEDA's HTTP add-on; the test prints how long that takes.

The interceptor holds a request until the Service has a ready endpoint. Tidegate scrapes it as the shared gateway of
deploy/examples/platforms/http-add-on-values.yaml, KEDA scales, and the node starts the pod. A stand-in for its engine
answers at a port of this host. `TIDEGATE_E2E_WAKES=1000` makes a measurement of the test.
"""

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import uniform
from statistics import quantiles

import pytest
import urllib3
import yaml

from tests.deploy.shared import DEPLOY

from .hollow_node import LOADING_S
from .release import KEDA
from .tenant import DEPLOYMENTS
from .waiting import until

INTERCEPTOR = "TIDEGATE_E2E_INTERCEPTOR"  # where requests enter, as http://10.0.0.7:8080
WAKES = int(os.environ.get("TIDEGATE_E2E_WAKES", "12"))
WORKLOADS = 4
TOKENS = 16
PATIENCE_S = 120.0
LOOK_S = 0.1
GATEWAY = yaml.safe_load((DEPLOY / "examples/platforms/http-add-on-values.yaml").read_text(encoding="utf-8"))["config"][
    "gateways"
][0]
VALUES = {**KEDA, "config": {"gateways": [{**GATEWAY, "namespaces": ["*"]}]}}
READS_KEDA = True
ROUTE = "http.keda.sh/v1beta1"
WARM = {"keep_warm": "3s", "smoothing.up": "1s", "smoothing.down": "1s"}


class Answers(BaseHTTPRequestHandler):
    """A completion in chunks, as a streaming engine sends it."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(HTTPStatus.OK)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(TOKENS):
            token = f"token-{number} "
            self.wfile.write(f"{len(token):x}\r\n{token}\r\n".encode())
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


class Front:
    """A Service without a selector, whose endpoint is an engine on this host and ready while the workload's pod is.

    scaled_at: when the Deployment's replicas were last seen to rise from 0, on the monotonic clock.
    """

    def __init__(self, tenant, name, host):
        self.name, self._tenant = name, tenant
        self._engine = ThreadingHTTPServer((host, 0), Answers)
        self.scaled_at, self.at_zero, self._ready = 0.0, False, None
        self._over = threading.Event()
        self._slices = f"/apis/discovery.k8s.io/v1/namespaces/{tenant.name}/endpointslices"
        ports = [{"name": "http", "port": self._engine.server_port, "protocol": "TCP"}]
        tenant.api.post(
            f"/api/v1/namespaces/{tenant.name}/services", {"metadata": {"name": name}, "spec": {"ports": ports}}
        )
        self._slice = {
            "metadata": {"name": f"{name}-e2e", "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "ports": ports,
            "endpoints": [{"addresses": [host], "conditions": {"ready": False}}],
        }
        tenant.api.post(self._slices, self._slice)
        self.port = self._engine.server_port
        self._threads = [threading.Thread(target=run) for run in (self._engine.serve_forever, self._follow)]
        for thread in self._threads:
            thread.start()

    def _follow(self):
        wanted = 0
        while not self._over.wait(LOOK_S):
            document = self._tenant.api.get(f"{DEPLOYMENTS.format(self._tenant.name)}/{self.name}")
            before, wanted = wanted, document["spec"]["replicas"]
            if wanted > before == 0:
                self.scaled_at = time.monotonic()
            ready = document["status"].get("readyReplicas", 0) > 0
            if ready != self._ready:
                self._slice["endpoints"][0]["conditions"] = {"ready": ready}
                self._tenant.api.patch(f"{self._slices}/{self.name}-e2e", {"endpoints": self._slice["endpoints"]})
                self._ready = ready
            self.at_zero = not (wanted or document["status"].get("replicas", 0) or ready)

    def close(self):
        self._over.set()
        self._engine.shutdown()
        for thread in self._threads:
            thread.join()
        self._engine.server_close()


@pytest.fixture
def fronts(tenant, page, cluster):
    """Workloads at zero, each with its route."""
    if INTERCEPTOR not in os.environ:
        pytest.skip(f"{INTERCEPTOR} names no interceptor of KEDA's HTTP add-on")
    created = []
    try:
        for number in range(WORKLOADS):
            name = f"chat-{number}"
            tenant.deployment(name, lambda model=name, **numbers: page.vllm(model=model, **numbers), replicas=0)
            front = Front(tenant, name, cluster.host)
            created.append(front)
            route = {
                "target": {"service": name, "port": front.port},
                "rules": [{"hosts": [host_of(tenant, front)]}],
                "scalingMetric": {"concurrency": {"targetValue": 16}},
            }
            metadata = {"name": name, "namespace": tenant.name}
            tenant.api.create({"apiVersion": ROUTE, "kind": "InterceptorRoute", "metadata": metadata, "spec": route})
            trigger = {"gateway": GATEWAY["name"], "gateway_port": None, "model": name, **WARM}
            tenant.scaled_object(name, minimum=0, maximum=1, polling=1, cooldown=1, **trigger)
        yield created
    finally:
        for front in created:
            front.close()


def host_of(tenant, front):
    return f"{front.name}.{tenant.name}.example.com"


def wake(tenant, front):
    """Seconds from a request at zero to the first replica, and to the first token; of a lost request a text."""
    until(lambda: front.at_zero, bool)
    time.sleep(1.0 + uniform(0.0, 2.0))  # the daemon notices, and no moment of its interval is preferred
    sent = time.monotonic()
    with urllib3.PoolManager(timeout=PATIENCE_S, retries=False) as pool:
        url, headers = f"{os.environ[INTERCEPTOR]}/v1/completions", {"Host": host_of(tenant, front)}
        try:
            response = pool.request("POST", url, json={"stream": True}, headers=headers, preload_content=False)
            answer = response.read(1)
            first = time.monotonic()
            answer += response.read()
        except urllib3.exceptions.HTTPError as error:
            return repr(error)
    cold = response.headers.get("X-KEDA-HTTP-Cold-Start")
    whole = (response.status, cold, answer.count(b"token-")) == (HTTPStatus.OK, "true", TOKENS)
    return (front.scaled_at - sent, first - sent) if whole else f"{response.status} {cold} {answer!r}"


def test_every_request_at_zero_is_answered(tenant, fronts, capsys):
    def wakes(front):
        return [wake(tenant, front) for _ in range(-(-WAKES // WORKLOADS))]

    with ThreadPoolExecutor(WORKLOADS) as pool:
        ended = [each for part in pool.map(wakes, fronts) for each in part]
    lost = [each for each in ended if isinstance(each, str)]
    report = [f"{len(ended)} requests at zero replicas, {len(lost)} lost; seconds from the request"]
    scaled, first = zip(*(each for each in ended if each not in lost), strict=True)
    for name, times in (("to the first replica", scaled), (f"to the first token, with a load of {LOADING_S:g}", first)):
        cuts = quantiles(times, n=100, method="inclusive")
        report.append(f"  {name}: p50 {cuts[49]:.2f}, p95 {cuts[94]:.2f}, most {max(times):.2f}")
    with capsys.disabled():
        sys.stdout.write("\n".join(["", *report, ""]))
    assert lost == []
