"""A cluster on loopback with the real daemon in it, as in tests/integration/cluster, and autoscalers in front."""

import grpc.aio
import pytest

from scaler.api.keda import externalscaler_pb2_grpc as rpc
from tests.fakes.daemon import running
from tests.fakes.keda import Keda
from tests.fakes.tenant import namespace_of
from tests.integration.cluster import conftest as incluster

from .autoscalers import Scaled

new_cluster = incluster.new_cluster

# Fresh for 1 s and held for 2 s here; by default 15 s and 5 minutes.
QUICKLY = """\
listen: {http: "127.0.0.1:0", grpc: "127.0.0.1:0"}
scrape: {interval: 0.2s, timeout: 0.2s}
freshness: {intervals: 5, hold: 2s}
tick: 0.1s
log: {format: json}
"""
# Metadata of a trigger: almost no smoothing, and asleep after a second.
QUICK = {"engine": "vllm", "objectives.work": "16", "keep_warm": "1s", "smoothing.up": "0s", "smoothing.down": "0.3s"}


def in_cluster(cluster, more=""):
    """A configuration that connects to this cluster. more: of its section `kubernetes`, such as `, blind_after: 1s`."""
    return QUICKLY + f"kubernetes: {{kubeconfig: {cluster.kubeconfig}{more}}}\n"


@pytest.fixture(scope="session")
def cluster(new_cluster):
    with new_cluster() as created:
        yield created


@pytest.fixture(scope="session")
def tidegate(cluster, tmp_path_factory):
    """The daemon shared by all tests that disturb neither the daemon nor all workloads."""
    folder = tmp_path_factory.mktemp("tidegate")
    config = folder / "config.yaml"
    config.write_text(in_cluster(cluster), encoding="utf-8")
    with running(config, folder / "log") as daemon:
        yield daemon


@pytest.fixture
def tenant(cluster, tidegate, request):
    """A namespace for this test alone."""
    created = cluster.tenant(namespace_of(request.node.name))
    yield created
    created.clear()


@pytest.fixture
async def channel(tidegate):
    async with grpc.aio.insecure_channel(tidegate.grpc) as channel:
        yield channel


@pytest.fixture
def keda(channel):
    """KEDA's calls, one by one."""
    return Keda(channel)


@pytest.fixture
def scaled(channel):
    """`scaled(document, replicas=3, fallback=…)`: KEDA and the HPA for a ScaledObject."""
    return lambda document, **more: Scaled(rpc.ExternalScalerStub(channel), document, **more)
