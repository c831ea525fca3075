"""A cluster on loopback (API, engines, exporters), the real daemon in it, and KEDA's client in front.

The daemon and the cluster live for the whole session; each test has its own namespace. Tests that disturb all workloads
(API server away, configuration changed) have a separate daemon and cluster.
"""

from contextlib import contextmanager

import grpc.aio
import pytest

from tests.fakes.daemon import running
from tests.fakes.keda import Keda
from tests.fakes.kubernetes import serving_in_thread, write_kubeconfig
from tests.fakes.targets import serving_targets
from tests.fakes.tenant import Tenant, namespace_of

CONFIG = """\
listen: {{http: "127.0.0.1:0", grpc: "127.0.0.1:0"}}
# Fresh for 1.5 s: a busy machine may well be late by half a second.
scrape: {{interval: 0.3s, timeout: 0.3s}}
freshness: {{intervals: 5, hold: {hold}, impute_after: {impute_after}, at_start: 0s}}
tick: 0.1s
log: {{format: json}}
kubernetes: {{kubeconfig: {kubeconfig}, blind_after: {blind_after}}}
"""


class Cluster:
    """The cluster's API and metrics targets. config: the text of a configuration that connects to it."""

    def __init__(self, fake, targets, kubeconfig):
        self.fake, self.targets, self.kubeconfig = fake, targets, kubeconfig
        targets.open(targets.new_address())  # chooses the port

    def config(self, more="", *, hold="60s", impute_after="1s", blind_after="60s"):
        settings = {"hold": hold, "impute_after": impute_after, "blind_after": blind_after}
        return CONFIG.format(kubeconfig=self.kubeconfig, **settings) + more

    def tenant(self, name):
        return Tenant(name, self.fake, self.targets)


@pytest.fixture(scope="session")
def new_cluster(tmp_path_factory):
    """`with new_cluster() as cluster`: an empty cluster."""

    @contextmanager
    def create():
        kubeconfig = tmp_path_factory.mktemp("cluster") / "kubeconfig"
        with serving_targets() as targets, serving_in_thread() as fake:
            yield Cluster(fake, targets, write_kubeconfig(kubeconfig, fake.url))

    return create


@pytest.fixture(scope="session")
def cluster(new_cluster):
    with new_cluster() as created:
        yield created


OBSERVED = """
workloads:
- {{namespace: watched, name: only-looked-at, mode: observe, engine: vllm, replicas: {{min: 1, max: 5}},
   pods: {{target: Deployment/only-looked-at, port: {port}}}}}
"""


@pytest.fixture(scope="session")
def tidegate(cluster, tmp_path_factory):
    """The daemon shared by all tests that disturb no other workload."""
    folder = tmp_path_factory.mktemp("tidegate")
    config = folder / "config.yaml"
    config.write_text(cluster.config(OBSERVED.format(port=cluster.targets.port)), encoding="utf-8")
    with running(config, folder / "log") as daemon:
        yield daemon


@pytest.fixture
def tenant(cluster, request):
    """A namespace for this test alone."""
    created = cluster.tenant(namespace_of(request.node.name))
    yield created
    created.clear()


@pytest.fixture
async def keda(tidegate):
    async with grpc.aio.insecure_channel(tidegate.grpc) as channel:
        yield Keda(channel)
