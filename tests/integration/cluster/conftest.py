"""A cluster on loopback (its API, its engines, its exporters), the real daemon in it, and KEDA in front of that.

The daemon and the cluster live as long as all storyboards; each storyboard has a namespace of its own. One that
disturbs everybody (the API server goes away, the configuration changes) has both to itself.
"""

from contextlib import contextmanager

import grpc.aio
import pytest

from tests.fakes.kubernetes import serving_in_thread, write_kubeconfig

from .keda import Keda
from .pages import serving_pages
from .place import Place, namespace_of
from .process import running

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
    """Its API, and who has pages in it. config: the text of a configuration that asks it."""

    def __init__(self, fake, pages, kubeconfig):
        self.fake, self.pages, self.kubeconfig = fake, pages, kubeconfig
        pages.open(pages.new_address())  # chooses the port

    def config(self, more="", *, hold="60s", impute_after="1s", blind_after="60s"):
        settings = {"hold": hold, "impute_after": impute_after, "blind_after": blind_after}
        return CONFIG.format(kubeconfig=self.kubeconfig, **settings) + more

    def place(self, name):
        return Place(name, self.fake, self.pages)


@pytest.fixture(scope="session")
def new_cluster(tmp_path_factory):
    """`with new_cluster() as cluster`: one with nothing in it."""

    @contextmanager
    def made():
        kubeconfig = tmp_path_factory.mktemp("cluster") / "kubeconfig"
        with serving_pages() as pages, serving_in_thread() as fake:
            yield Cluster(fake, pages, write_kubeconfig(kubeconfig, fake.url))

    return made


@pytest.fixture(scope="session")
def cluster(new_cluster):
    with new_cluster() as made:
        yield made


OBSERVED = """
workloads:
- {{namespace: watched, name: only-looked-at, mode: observe, engine: vllm, replicas: {{min: 1, max: 5}},
   pods: {{target: Deployment/only-looked-at, port: {port}}}}}
"""


@pytest.fixture(scope="session")
def tidegate(cluster, tmp_path_factory):
    """The daemon that all who disturb nobody share."""
    folder = tmp_path_factory.mktemp("tidegate")
    config = folder / "config.yaml"
    config.write_text(cluster.config(OBSERVED.format(port=cluster.pages.port)), encoding="utf-8")
    with running(config, folder / "log") as daemon:
        yield daemon


@pytest.fixture
def place(cluster, request):
    """A namespace of this storyboard alone."""
    made = cluster.place(namespace_of(request.node.name))
    yield made
    made.clear()


@pytest.fixture
async def keda(tidegate):
    async with grpc.aio.insecure_channel(tidegate.grpc) as channel:
        yield Keda(channel)
