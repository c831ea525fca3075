"""Runs the metrics API over real TLS beside a fake API server and a fake aggregator.

Tests publish decisions; metrics pages of pods are read as the daemon reads them.
"""

import asyncio
from contextlib import AsyncExitStack
from random import Random
from types import MappingProxyType, SimpleNamespace

import pytest
import trustme

from exporter.attribution import owners_by_name
from exporter.catalog import Reader
from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.client import connect
from exporter.kubernetes.objects import Ref
from exporter.kubernetes.resources import RESOURCES
from exporter.model import WorkloadKey
from exporter.textformat import parse
from scaler.api.metrics_api.documents import CUSTOM_GROUP, EXTERNAL_GROUP
from scaler.api.metrics_api.pods import Sources
from scaler.api.metrics_api.server import create
from scaler.engine.decider import Decider
from scaler.engine.publisher import Publisher
from scaler.model import Decision, Evidence, Reason
from scaler.policy.columns import Signal, Spec
from scaler.tls import TlsFiles
from scaler.workloads import Registry
from scaler.workloads.pods import cluster_owners
from scaler.workloads.spec import WorkloadSpec
from tests.fakes.aggregator import HPA, SERVICE, authentication, certificate, connecting
from tests.fakes.clock import ManualClock
from tests.fakes.kubernetes import serving, write_kubeconfig

CONFIG_MAP = ("kube-system", "extension-apiserver-authentication")


class Workloads:
    """Holds the workloads and their decisions."""

    def __init__(self, clock):
        self.publisher = Publisher(())
        self._clock = clock
        self._targets = {}

    def registry(self):
        """Returns the registry of every workload that was added."""
        workloads = tuple(SimpleNamespace(key=key) for key in self._targets)
        targets = {key: target for key, target in self._targets.items() if target is not None}
        return Registry(workloads=workloads, targets=MappingProxyType(targets))

    def add(self, key, target=None):
        self._targets[key] = target
        self.publisher.keep_only(self._targets, self._clock.now())

    def decide(self, name, replicas, *, namespace="ai", kind="Deployment", target=None, trigger="", **more):
        """replicas None is unknown; more: fields of Decision."""
        key = WorkloadKey(namespace, name, trigger)
        self.add(key, Ref(namespace, kind, target or name))
        more.setdefault("active", replicas is None or replicas > 0)
        more.setdefault("reason", Reason.UNKNOWN if replicas is None else Reason.SERVING)
        more.setdefault("evidence", Evidence())
        decided_at = more.pop("decided_at", self._clock.now())
        self.publisher.publish([Decision(key, replicas, decided_at=decided_at, **more)], self._clock.now())


class Pods:
    """Holds the pods of a cluster cache, and a real decider that reads their metrics pages."""

    def __init__(self, clock):
        self.cluster = Cluster(blind_s=3600.0)
        self._clock = clock
        self._decider = None
        for resource in RESOURCES:
            self.cluster.replace(resource, None, [], clock.now())

    def decided_by(self, targets, *, interval_s=5.0):
        """Replaces the decider by one for these workloads. targets: the scaled object of each."""
        by_name = owners_by_name(dict.fromkeys(targets))
        plans = [
            WorkloadSpec(key, Spec(targets=((Signal.WORK, 16.0),), minimum=0, maximum=8)) for key in sorted(targets)
        ]
        owners = cluster_owners(self.cluster, targets, by_name)
        self._decider = Decider(plans, interval_s=interval_s, fresh_intervals=3.0, owners=owners)

    def apply(self, resource, *documents):
        for document in documents:
            self.cluster.apply(resource, "MODIFIED", document, self._clock.now())

    def expect(self, target):
        self._decider.expect(target)

    def land(self, target, text):
        """Delivers the metrics page of a target now."""
        now = self._clock.now()
        self._decider.land(target, Reader(target.kind).read(parse(text.encode()), now), now, now)

    def read(self, namespace, chosen, now):
        return {} if self._decider is None else self._decider.latest.pods(namespace, chosen, now)


class Api:
    """Runs the metrics API, and opens connections to it.

    problems: by "tls" and "front proxy", the reported problems, None once one is solved.
    """

    def __init__(self, stack, folder, clock, kubernetes, client):
        self.clock, self.kubernetes = clock, kubernetes
        self.workloads, self.pods = Workloads(clock), Pods(clock)
        self.sources = Sources(self.pods.cluster, self.pods.read)
        self.proxy_ca, self.server_ca = trustme.CA(), trustme.CA()
        self.problems = {"tls": [], "front proxy": []}
        self.observed = []
        self.files = TlsFiles(str(folder / "tls.crt"), str(folder / "tls.key"))
        self._folder, self._stack, self._client = folder, stack, client
        self.server, self._following = None, 0

    def write(self, authority, *, key=True):
        leaf = authority.issue_cert(SERVICE)
        (self._folder / "tls.crt").write_bytes(leaf.cert_chain_pems[0].bytes())
        if key:
            (self._folder / "tls.key").write_bytes(leaf.private_key_pem.bytes())

    async def start(self, groups=(EXTERNAL_GROUP, CUSTOM_GROUP)):
        self.write(self.server_ca)
        self.server = create(
            self.workloads.publisher,
            self.sources,
            host="127.0.0.1",
            port=0,
            files=self.files,
            groups=groups,
            clock=self.clock,
            observe=lambda *ended: self.observed.append(ended),
            on_tls_problem=self.problems["tls"].append,
            on_front_proxy_problem=self.problems["front proxy"].append,
        )
        self.port = await self.server.start()
        self._stack.push_async_callback(self.server.stop)
        self.update_registry()

    def update_registry(self):
        """Passes the current workloads to the server."""
        self.server.take(self.workloads.registry())

    async def follow(self):
        """Starts to follow the API server. Returns once the front proxy's configuration has been read."""
        task = asyncio.create_task(self.server.follow(self._client))

        async def end():
            task.cancel()
            await asyncio.wait([task])

        self._stack.push_async_callback(end)
        self._following += 1
        await self.clock.asleep(self._following)

    async def read_again(self, seconds=60.0):
        self.clock.advance(seconds)
        await self.clock.asleep(self._following)

    async def connect(self, leaf=None, *, authority=None, keep=True):
        return await self._stack.enter_async_context(
            connecting(self.port, authority or self.server_ca, leaf, keep=keep)
        )

    async def aggregator(self, *, keep=True):
        """Connects with the certificate of the API aggregator."""
        return await self.connect(certificate(self.proxy_ca), keep=keep)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def kubernetes():
    async with serving() as fake:
        yield fake


@pytest.fixture
async def api(tmp_path, clock, kubernetes):
    """A started metrics API that follows the API server and authorizes the HPA."""
    client = await connect(str(write_kubeconfig(tmp_path / "kubeconfig", kubernetes.url)), None, Random(1))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.close)
        api = Api(stack, tmp_path, clock, kubernetes, client)
        kubernetes.config_maps[CONFIG_MAP] = authentication(api.proxy_ca)
        kubernetes.allowed = lambda spec: spec["user"] == HPA
        await api.start()
        await api.follow()
        yield api
