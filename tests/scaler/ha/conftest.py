"""Runs replicas in one event loop over real TLS: each has its own clock, which the test sets; all share one Lease."""

import asyncio
from contextlib import AsyncExitStack
from random import Random

import pytest
import trustme

from exporter.kubernetes.protocol import ApiFailure
from exporter.model import WorkloadKey
from scaler.engine.publisher import Publisher
from scaler.ha.election import Election, LeaderElector, Terms
from scaler.ha.follower import Follower
from scaler.ha.leader import BoardServer, PeerTlsFiles, client_context, server_context
from scaler.model import Decision, Reason

NAME = "tidegate.tidegate.svc"
TICK_S = 1.0


class World:
    """Holds the present; each replica's clock shows it with its own offset."""

    def __init__(self):
        self.now = 1000.0


class OffsetClock:
    """Implements `exporter.clock.Clock`. A sleep is recorded and ends at once."""

    def __init__(self, world, offset_s):
        self._world, self.offset_s, self.slept = world, offset_s, []

    def now(self):
        return self._world.now + self.offset_s

    async def sleep(self, seconds):
        self.slept.append(seconds)
        await asyncio.sleep(0)


class OneLease:
    """Implements `exporter.kubernetes.leases.Leases`. failure: an ApiFailure that every call raises."""

    def __init__(self):
        self.lease_now, self.failure, self._versions = None, None, 0
        self.writes, self.looks = [], 0

    async def lease(self, namespace, name):
        self.looks += 1
        if self.failure:
            raise self.failure
        return self.lease_now

    async def write_lease(self, namespace, name, lease):
        if self.failure:
            raise self.failure
        if lease.version != (self.lease_now.version if self.lease_now else ""):
            raise ApiFailure(409, "the object has been modified")
        self._versions += 1
        self.lease_now = lease._replace(version=str(self._versions))
        self.writes.append(lease.holder)
        return self.lease_now


class Pki:
    """Holds a certificate authority and writes the files that it signed."""

    def __init__(self, folder):
        self.folder, self.ca = folder, trustme.CA()

    def files(self, folder_name, name=NAME, ca=None):
        folder = self.folder / folder_name
        folder.mkdir(exist_ok=True)
        issued = (ca or self.ca).issue_cert(name)
        issued.private_key_pem.write_to_path(folder / "tls.key")
        issued.cert_chain_pems[0].write_to_path(folder / "tls.crt")
        (ca or self.ca).cert_pem.write_to_path(folder / "ca.crt")
        return PeerTlsFiles(*(str(folder / file) for file in ("tls.crt", "tls.key", "ca.crt")))


class Peer:
    """Holds one replica's publisher, elector, server and follower. states: (state, clock offset) of each response;
    requested: workloads of each requested state; failed: kind of failure of each request, None without one.
    """

    def __init__(self, name, world, leases, files, offset_s, workloads):
        self.name, self.clock, self.files = name, OffsetClock(world, offset_s), files
        self.publisher = Publisher(WorkloadKey("ai", each) for each in workloads)
        self.states, self.requested, self.failed, self.problems, self.tls_problems = [], [], [], [], []
        self.delay_s = 0.0
        self._leases = leases
        self.server = BoardServer(
            self.publisher,
            host="127.0.0.1",
            port=0,
            context=server_context(files, self.tls_problems.append),
            name=NAME,
            clock=self.clock,
            state=self._state,
        )

    async def start(self):
        self.address = f"127.0.0.1:{await self.server.start()}"
        self.elector = self.server.elector = LeaderElector(
            self._leases,
            Election(self.name, self.address, Terms()),
            namespace="tidegate",
            name="tidegate",
            clock=self.clock,
            jitter=Random(1),
            followed_s=3.0,
            delay_s=lambda: self.delay_s,
            on_problem=self.problems.append,
        )
        self.follower = Follower(
            self.publisher,
            leader=self.elector.leader,
            leads=self.elector.leads,
            context=client_context(self.files, self.tls_problems.append),
            name=NAME,
            tick_s=TICK_S,
            clock=self.clock,
            on_state=self._take_state,
            on_result=lambda _, failure: self.failed.append(failure.kind if failure else None),
        )

    def decide(self, **replicas):
        """Publishes a sweep that changed these workloads."""
        now = self.clock.now()
        self.publisher.publish([decided(name, number, now) for name, number in replicas.items()], at=now)

    @property
    def replicas(self):
        return {key.name: each.replicas for key, each in self.publisher.board.decisions.items()}

    async def poll(self):
        """Polls once. Returns the kind of failure, or None."""
        async with self.follower.session() as session:
            await self.follower.poll(session)
        return self.failed[-1] if self.failed else None

    def _state(self, workloads):
        self.requested.append(None if workloads is None else {key.name for key in workloads})
        return lambda: b"all of it" if workloads is None else b"some of it"

    async def _take_state(self, state, offset_s):
        self.states.append((state, offset_s))


def decided(name, replicas, at=1000.0):
    reason = Reason.UNKNOWN if replicas is None else Reason.SERVING if replicas else Reason.ASLEEP
    return Decision(WorkloadKey("ai", name), replicas, replicas != 0, reason, at, measured_at=at - 1.0)


@pytest.fixture
def world():
    return World()


@pytest.fixture
def leases():
    return OneLease()


@pytest.fixture
def pki(tmp_path):
    return Pki(tmp_path)


@pytest.fixture
async def peer(world, leases, pki):
    """`await peer("a", offset_s=300.0)`: a replica that listens and has not yet read the Lease."""
    async with AsyncExitStack() as stack:

        async def start(name, *, offset_s=0.0, files=None, workloads=("chat", "code")):
            one = Peer(name, world, leases, files or pki.files(name), offset_s, workloads)
            await one.start()
            stack.push_async_callback(one.server.stop)
            return one

        yield start


@pytest.fixture
async def pair(peer):
    """A leader and a follower with different decisions; the leader's clock is 5 minutes ahead."""
    leader, follower = await peer("a", offset_s=300.0), await peer("b")
    leader.decide(chat=3, code=0)
    follower.decide(chat=7, code=7)
    await leader.elector.update()
    await follower.elector.update()
    return leader, follower


@pytest.fixture
def decision():
    return decided
