"""A real control plane, a node without a kubelet, the shipped chart, and the daemon as a process of this host.

Cluster and node live for the whole session. Each file has its own release of the chart with its own daemon, which
tests can kill, and each test its own namespace; the daemon watches the namespaces of its file alone. So files run side
by side (`-n 4 --dist loadfile --no-loadscope-reorder`). A file sets by constants of its module what differs:

VALUES: the chart's values; by default for KEDA.
READS_KEDA: its daemon also reads KEDA's namespace, where a gateway is.
FIRST:  it begins first, because it takes the longest.
ALONE:  no other file runs meanwhile, because it takes what all use: an APIService, or KEDA's operator. Its daemon
        watches all namespaces, as the chart's default does, and so can share GPUs.
"""

import re
import secrets
import uuid

import pytest

from tests.fakes.ports import free_ports
from tests.fakes.targets import serving_targets

from . import control_plane
from .api import Api
from .daemon import Daemon
from .hollow_node import LABELS, HollowNode
from .release import KEDA, Release
from .tenant import Tenant


def is_alone(module):
    return getattr(module, "ALONE", False)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Files that run alone come last: they wait for all others. The longest of the others comes first."""
    here = __name__.rpartition(".")[0]
    items.sort(key=lambda item: item.module.__name__.startswith(here) and turn_of(item.module))


def turn_of(module):
    return 1 if is_alone(module) else -1 if getattr(module, "FIRST", False) else 0


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    with control_plane.control_plane(tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane


@pytest.fixture(scope="session")
def api(cluster):
    client = Api(cluster.kubeconfig)
    yield client
    client.close()


@pytest.fixture(scope="session")
def targets(cluster):
    with serving_targets() as served:
        yield served


@pytest.fixture(scope="session")
def node(api, targets):
    hollow = HollowNode(api, targets, f"tidegate-e2e-{uuid.uuid4().hex[:6]}")
    yield hollow
    hollow.end()
    hollow.check()


@pytest.fixture(scope="module")
def turn(cluster, request, tmp_path_factory):
    with control_plane.turn(tmp_path_factory, "cluster", alone=is_alone(request.module)):
        yield


@pytest.fixture(scope="module")
def namespaces(api, node, turn, request):
    """{name of a test: its namespace} of this file, and one with the node's dcgm-exporter."""
    items = [item for item in request.session.items if item.path == request.path]
    tests = [item.name for item in items if "tenant" in item.fixturenames]
    run = uuid.uuid4().hex[:6]
    slugs = {name: re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")[-48:].strip("-") for name in tests}
    names = {"gpus": f"gpus-{run}", **{name: f"{slug}-{run}" for name, slug in slugs.items()}}
    for name in names.values():
        api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": LABELS}})
    node.export_gpus(names["gpus"])
    yield names
    for name in names.values():
        api.delete(f"/api/v1/namespaces/{name}")


def keda_namespace(api):
    """The one with KEDA's metrics server; a ClusterTriggerAuthentication's Secrets are looked up there."""
    registered = api.get("/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.external.metrics.k8s.io")
    return registered["spec"]["service"]["namespace"] if registered else "keda"


def merged(values, others):
    """Both, key by key; where neither is a mapping, the others' value."""
    both = {key: merged(values[key], others[key]) for key in values if isinstance(others.get(key), dict)}
    return {**values, **others, **both}


@pytest.fixture(scope="module")
def release(api, cluster, namespaces, request):
    """The chart's objects in the cluster, without its APIServices."""
    everywhere = {"kubernetes": {}, "sharing": {"max_priority": 100}}
    read = [*namespaces.values(), *([keda_namespace(api)] if getattr(request.module, "READS_KEDA", False) else [])]
    here = {"kubernetes": {"namespaces": read}}
    config = everywhere if is_alone(request.module) else here
    values = merged(
        {"config": config, "keda": {"namespace": keda_namespace(api)}}, getattr(request.module, "VALUES", KEDA)
    )
    created = Release(api, f"tidegate-e2e-{uuid.uuid4().hex[:6]}", values, cluster.host)
    try:
        created.install()
        yield created
    finally:
        created.uninstall()


@pytest.fixture(scope="module")
def ports():
    """Other ones than the last run had: KEDA keeps a connection for each address that it has called, and waits up to
    two minutes before it dials one again that refused.
    """
    found = free_ports(secrets.randbelow(900) + 3)[-3:]
    return dict(zip(("http", "grpc", "metrics"), found, strict=True))


@pytest.fixture(scope="module")
def daemon(release, ports, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tidegate")
    process = Daemon(release.configuration(folder, ports), ports["http"], folder)
    with control_plane.turn(tmp_path_factory, "start", alone=True):  # a cold start compiles the kernels for the others
        process.start()
    yield process
    process.recover()
    process.stop()


@pytest.fixture
def tidegate(daemon):
    """The daemon, running before and after."""
    daemon.recover()
    yield daemon
    daemon.recover()


@pytest.fixture
def tenant(api, node, targets, cluster, namespaces, ports, tidegate, request):
    """A namespace for this test alone."""
    grpc = f"{cluster.host}:{ports['grpc']}"
    created = Tenant(namespaces[request.node.name], api, node, targets, cluster.host, grpc, tidegate)
    yield created
    tidegate.recover()
    created.clear()


@pytest.fixture(scope="module")
def registered(release, daemon, ports):
    """Registers the metrics API at the API server; former providers of its groups get them back."""
    release.register(ports["metrics"])
    return release
