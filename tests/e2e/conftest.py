"""A real control plane, a node without a kubelet in it, and the daemon as a process of this host that can die.

Cluster, node and daemon live as long as all storyboards; each storyboard has a namespace of its own, and the next one
finds the daemon whole again.
"""

import re
import uuid

import pytest
import trustme

from tests.integration.cluster.pages import serving_pages

from . import control_plane
from .api import Api
from .daemon import Daemon, free_ports
from .hollow_node import HollowNode
from .metrics_api import NAMESPACE, SERVER_NAME, SERVICE, Registered
from .place import Place

# Fresh for 3 s; held for 25 s after that, so that a storyboard sees both the decision that is held and the error.
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
    with control_plane.found(tmp_path_factory.mktemp("control-plane")) as found:
        yield found


@pytest.fixture(scope="session")
def api(cluster):
    made = Api(cluster.kubeconfig)
    yield made
    made.close()


@pytest.fixture(scope="session")
def pages(cluster):
    with serving_pages() as served:
        yield served


@pytest.fixture(scope="session")
def node(api, pages):
    made = HollowNode(api, pages)
    yield made
    made.end()
    made.check()


@pytest.fixture(scope="session")
def authority():
    """Who signed the daemon's certificate."""
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
    made = Daemon(config, ports["http"], folder)
    made.start()
    yield made
    made.whole()
    made.stop()


@pytest.fixture
def tidegate(daemon):
    """The daemon, whole before and after."""
    daemon.whole()
    yield daemon
    daemon.whole()


@pytest.fixture
def place(api, node, pages, cluster, ports, tidegate, request):
    """A namespace of this storyboard alone."""
    words = re.sub("[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[-48:].strip("-")
    grpc = f"{cluster.host}:{ports['grpc']}"
    made = Place(f"{words}-{uuid.uuid4().hex[:6]}", api, node, pages, cluster.host, grpc, tidegate)
    yield made
    tidegate.whole()
    made.clear()


@pytest.fixture
def registered(api, cluster, ports, authority):
    """The metrics API at the API server, in place of whoever has the groups otherwise, who gets them back."""
    with Registered(api, cluster.host, ports["metrics"], authority) as made:
        yield made
