"""A cluster on loopback with the real daemon in it, as tests/integration/cluster has, and autoscalers before that."""

import grpc.aio
import pytest

from scaler.api.keda import externalscaler_pb2_grpc as rpc
from tests.integration.cluster import conftest as incluster
from tests.integration.cluster.keda import Keda
from tests.integration.cluster.place import namespace_of
from tests.integration.cluster.process import running

from .autoscalers import Scaled

new_cluster = incluster.new_cluster

# What is believed here for a second and held for two is, by default, for a quarter of a minute and for five.
QUICKLY = """\
listen: {http: "127.0.0.1:0", grpc: "127.0.0.1:0"}
scrape: {interval: 0.2s, timeout: 0.2s}
freshness: {intervals: 5, hold: 2s}
tick: 0.1s
log: {format: json}
"""
# A trigger's words: no smoothing to speak of, and asleep after a second.
QUICK = {"engine": "vllm", "keep_warm": "1s", "smoothing.up": "0s", "smoothing.down": "0.3s"}


def in_cluster(cluster, more=""):
    """A configuration that asks this cluster. more: of its section `kubernetes`, as `, blind_after: 1s`."""
    return QUICKLY + f"kubernetes: {{kubeconfig: {cluster.kubeconfig}{more}}}\n"


@pytest.fixture(scope="session")
def cluster(new_cluster):
    with new_cluster() as made:
        yield made


@pytest.fixture(scope="session")
def tidegate(cluster, tmp_path_factory):
    """The daemon of all stories in which nothing happens to the daemon itself, nor to everybody."""
    folder = tmp_path_factory.mktemp("tidegate")
    config = folder / "config.yaml"
    config.write_text(in_cluster(cluster), encoding="utf-8")
    with running(config, folder / "log") as daemon:
        yield daemon


@pytest.fixture
def place(cluster, tidegate, request):
    """A namespace of this story alone."""
    made = cluster.place(namespace_of(request.node.name))
    yield made
    made.clear()


@pytest.fixture
async def channel(tidegate):
    async with grpc.aio.insecure_channel(tidegate.grpc) as made:
        yield made


@pytest.fixture
def keda(channel):
    """KEDA's calls, one by one."""
    return Keda(channel)


@pytest.fixture
def scaled(channel):
    """`scaled(document, replicas=3, fallback=…)`: KEDA and the HPA at work on a ScaledObject."""
    return lambda document, **more: Scaled(rpc.ExternalScalerStub(channel), document, **more)
