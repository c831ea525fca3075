"""A real control plane, a node without a kubelet, and the daemon as a process of this host, which tests can kill.

Cluster, node and daemon live for the whole session; each test has its own namespace, and starts with a running daemon.
"""

import re
import uuid

import pytest
import trustme

from tests.fakes.ports import free_ports
from tests.fakes.targets import serving_targets

from . import control_plane
from .api import Api
from .daemon import Daemon
from .hollow_node import HollowNode
from .metrics_api import NAMESPACE, SERVER_NAME, SERVICE, Registered
from .tenant import Tenant

# Fresh for 3 s, then held for 25 s, so that a test covers both the held decision and the error.
HOLD_S = 25
CONFIG = """\
listen:
  http: "127.0.0.1:{http}"
  grpc: "0.0.0.0:{grpc}"
  metrics_api: {{address: "0.0.0.0:{metrics}", certificate: {folder}/tls.crt, key: {folder}/tls.key,
                service: {service}, external: true, custom: true}}
scrape: {{interval: 0.5s, timeout: 0.5s}}
freshness: {{intervals: 6, hold: {hold}s, impute_after: 3s, at_start: 0s}}
tick: 0.2s
log: {{format: json}}
kubernetes: {{kubeconfig: {kubeconfig}}}
gpus: [{{url: "{gpus}"}}]
"""


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
    hollow = HollowNode(api, targets)
    yield hollow
    hollow.end()
    hollow.check()


@pytest.fixture(scope="session")
def authority():
    """The CA of the daemon's certificate."""
    return trustme.CA()


@pytest.fixture(scope="session")
def ports():
    return dict(zip(("http", "grpc", "metrics"), free_ports(3), strict=True))


@pytest.fixture(scope="session")
def daemon(cluster, node, authority, ports, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tidegate")
    certificate = authority.issue_cert(SERVER_NAME)
    (folder / "tls.crt").write_bytes(b"".join(part.bytes() for part in certificate.cert_chain_pems))
    certificate.private_key_pem.write_to_path(str(folder / "tls.key"))
    config = folder / "config.yaml"
    settings = {"folder": folder, "hold": HOLD_S, "kubeconfig": cluster.kubeconfig.resolve(), "gpus": node.gpus_url}
    settings["service"] = f"{SERVICE}.{NAMESPACE}"
    config.write_text(CONFIG.format(**ports, **settings), encoding="utf-8")
    process = Daemon(config, ports["http"], folder)
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
def tenant(api, node, targets, cluster, ports, tidegate, request):
    """A namespace for this test alone."""
    slug = re.sub("[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[-48:].strip("-")
    grpc = f"{cluster.host}:{ports['grpc']}"
    created = Tenant(f"{slug}-{uuid.uuid4().hex[:6]}", api, node, targets, cluster.host, grpc, tidegate)
    yield created
    tidegate.recover()
    created.clear()


@pytest.fixture
def registered(api, cluster, ports, authority):
    """Registers the metrics API at the API server; former providers of its groups get them back."""
    with Registered(api, cluster.host, ports["metrics"], authority) as registered_api:
        yield registered_api
