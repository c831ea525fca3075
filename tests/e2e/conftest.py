"""A real control plane, a node without a kubelet, the shipped chart, and the daemon as a process of this host.

Cluster and node live for the whole session. Each file has its own release of the chart with its own daemon, which
tests can kill, and each test its own namespace; the daemon watches the namespaces of its file alone. So files run side
by side, one per worker (`-n 20`): nearly all of their time is waiting. A file sets by constants of its module what
differs:

VALUES: the chart's values; by default for KEDA.
READS_KEDA: its daemon also reads KEDA's namespace, where a gateway is.
TAKES: what of `SHARED` no other file may use meanwhile. Such files run last.
USES: what of `SHARED` it needs; by default KEDA.
EVERYWHERE: its daemon watches all namespaces, as the chart's default does, and so can share GPUs.
"""

import re
import secrets
import uuid
from contextlib import ExitStack

import pytest

from tests.fakes.ports import free_ports
from tests.fakes.targets import serving_targets

from . import control_plane
from .api import Api
from .daemon import Daemon
from .hollow_node import LABELS, HollowNode
from .release import KEDA, Release
from .tenant import Tenant

# The tests of these files run side by side too, each with a release and a daemon of its own: they take the longest.
APART = ("test_daemon.py", "test_staircase.py")
# In the order in which they are locked.
SHARED = (
    "external-metrics",  # the APIService of external.metrics.k8s.io, which KEDA's HPAs need
    "keda",  # its operator
    "events",  # a daemon that watches all namespaces also writes Events for, and calls, the workloads of other files
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A worker takes a whole file at a time, or one test of a file whose tests run apart."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - pytest-xdist is optional here

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0]
            return nodeid if file.rpartition("/")[2] in APART else file

    config.option.loadscopereorder = False  # in the order of pytest_collection_modifyitems
    return Scheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """The longest tests come first, and files that take what others use last: they wait for those."""
    items.sort(key=lambda item: is_ours(item) and turn_of(item.module))


def is_ours(item):
    return item.module.__name__.startswith(__name__.rpartition(".")[0])


def turn_of(module):
    return 1 if exclusive_resources(module) else -1 if module.__file__.rpartition("/")[2] in APART else 0


def exclusive_resources(module):
    return getattr(module, "TAKES", ())


def shared_resources(module):
    return getattr(module, "USES", ("external-metrics", "keda"))


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
    takes, uses = exclusive_resources(request.module), shared_resources(request.module)
    others = {item.module for item in request.session.items if is_ours(item)}
    if takes:
        control_plane.until_begun(
            tmp_path_factory, [other.__name__ for other in others if not exclusive_resources(other)]
        )
    with ExitStack() as held:
        for name in SHARED:
            if name in takes or name in uses:
                held.enter_context(control_plane.turn(tmp_path_factory, name, alone=name in takes))
        control_plane.begin(tmp_path_factory, request.module.__name__)
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
    config = everywhere if getattr(request.module, "EVERYWHERE", False) else here
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
    with control_plane.after_the_first(tmp_path_factory, "start"):  # a cold start compiles the kernels for the others
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
