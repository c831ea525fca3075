"""Several replicas of Tidegate: the leader is killed, frozen, drained or cut off; clocks differ; the API server is
away.
"""

import asyncio
import json
import os
import signal
import ssl
import time
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import groupby
from pathlib import Path

import grpc.aio
import pytest
import trustme
from aiohttp import web

from exporter.model import WorkloadKey
from scaler.ha.frame import Frame, encode
from scaler.model import Decision, Reason
from tests.fakes.daemon import Tidegate, end
from tests.fakes.keda import Keda
from tests.fakes.tenant import namespace_of
from tests.fakes.waiting import SOON_S, meanwhile, until
from tests.fakes.warm import WarmProcess

PEERS = """\
listen:
  http: "127.0.0.1:0"
  grpc: "127.0.0.1:0"
  peers:
    address: "127.0.0.1:0"
    certificate: {folder}/tls.crt
    key: {folder}/tls.key
    ca: {folder}/ca.crt
    server_name: tidegate.tidegate.svc
    lease: {name}.tidegate
"""
QUICK = {"keep_warm": "1s", "objectives.work": "16", "smoothing.up": "0s", "smoothing.down": "0.3s"}
ROUND_ROBIN = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})


class Replicas:
    """The replicas of one test, each a process; all use the same API and the same Lease."""

    def __init__(self, cluster, folder, name, stack):
        self.cluster, self.name = cluster, name
        self._folder, self._stack = folder, stack
        self.all = []
        ca = trustme.CA()
        ca.cert_pem.write_to_path(folder / "ca.crt")
        issued = ca.issue_cert("tidegate.tidegate.svc")
        issued.private_key_pem.write_to_path(folder / "tls.key")
        issued.cert_chain_pems[0].write_to_path(folder / "tls.crt")

    async def start(self, *, offset_s=0.0, edit=lambda text: text):
        """Start one more replica; returns when it is ready. offset_s: of its clock. edit: changes its configuration."""
        number = len(self.all)
        config, log = self._folder / f"config-{number}.yaml", self._folder / f"log-{number}"
        text = self.cluster.config()
        text = PEERS.format(folder=self._folder, name=self.name) + text.split("\n", 1)[1]
        config.write_text(edit(text), encoding="utf-8")
        with log.open("wb") as file:
            environment = {**os.environ, "POD_NAME": f"replica-{number}"}
            program = Path(__file__).with_name("replica.py")
            process = WarmProcess(str(program), config, repr(offset_s), stderr=file, env=environment)
        self._stack.callback(self._end, process, log)
        replica = await asyncio.to_thread(Tidegate, process, log)
        replica.log = log
        replica.name = f"replica-{number}"
        replica.keda = Keda(await self._stack.enter_async_context(grpc.aio.insecure_channel(replica.grpc)))
        self.all.append(replica)
        return replica

    @staticmethod
    def _end(process, log):
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            end(process)
        responses = log.read_text(encoding="utf-8")
        assert process.returncode in {0, -signal.SIGKILL}, responses
        assert "raceback" not in responses, responses

    def writes(self):
        """The holders that wrote the Lease, in order; "" means that it was released."""
        names = [holder for _, name, holder in self.cluster.fake.lease_writes if name == self.name]
        return [holder.partition("_")[0] for holder, _ in groupby(names)]

    @asynccontextmanager
    async def round_robin(self, scaled):
        """The responses that KEDA gets round robin from all replicas: each change, in order."""
        target = "ipv4:" + ",".join(each.grpc for each in self.all)
        options = [("grpc.service_config", ROUND_ROBIN)]
        async with (
            grpc.aio.insecure_channel(target, options=options) as channel,
            responses_to(Keda(channel), scaled) as responses,
        ):
            yield responses

    async def until_led_by(self, leader, *followers):
        await leader.until_metric("tidegate_leader", 1.0)
        for each in followers:
            await until(partial(self.role, each), lambda role: role == "follower")

    @staticmethod
    async def role(replica):
        text = (await replica.get("/readyz?verbose")).text
        return text.rpartition("role: ")[2].split("\n")[0]


@pytest.fixture(scope="module")
def cluster(new_cluster):
    """A separate cluster, since some of these tests stop its API server."""
    with new_cluster() as created:
        yield created


@pytest.fixture
async def replicas(cluster, tmp_path, request):
    cluster.fake.mend()
    async with AsyncExitStack() as stack:
        yield Replicas(cluster, tmp_path, namespace_of(request.node.name), stack)


@asynccontextmanager
async def responses_to(keda, scaled):
    """The responses while the block runs: each change, in order."""
    responses = []

    async def ask():
        answer = await keda.answer(scaled)
        if answer is grpc.StatusCode.CANCELLED:  # grpc/grpc#41785: KEDA retries once, at once
            answer = await keda.answer(scaled)
        if not responses or responses[-1] != answer:
            responses.append(answer)

    await ask()
    async with meanwhile(ask):
        yield responses
    await ask()


async def until_all(replicas, answer, scaled):
    for each in replicas:
        await each.keda.until(answer, scaled)


async def test_replicas_publish_the_same_decisions_in_the_same_order(replicas, tenant, page):
    leader = await replicas.start()
    # It scrapes rarely: soon after a change, its decisions come from the leader.
    follower = await replicas.start(edit=lambda text: text.replace("interval: 0.3s", "interval: 20s"))
    await replicas.until_led_by(leader, follower)
    llama = tenant.deployment("llama", page.vllm(waiting=30, running=10), pods=1)
    metadata = {"smoothing.up": "0s", "smoothing.down": "0s"}
    chat = tenant.scaled_object("chat", target="llama", minimum=1, maximum=9, engine="vllm", **metadata)
    await until_all([leader, follower], (3, True), chat)
    async with responses_to(leader.keda, chat) as one, responses_to(follower.keda, chat) as other:
        for requests, answer in ((60, 4), (80, 5), (100, 7), (1000, 9)):
            llama.serve(page.vllm(waiting=0, running=requests))
            await until_all([leader, follower], (answer, True), chat)
    assert one == other
    assert [number for number, _ in one] == [3, 4, 5, 7, 9]
    assert await follower.metric("tidegate_peer_board_age_seconds") is not None
    assert await leader.metric("tidegate_peer_board_age_seconds") is None


async def test_state_of_a_killed_leader_is_not_lost(replicas, tenant, page):
    leader = await replicas.start()
    # It scrapes once a minute, the first time before the burst.
    follower = await replicas.start(edit=lambda text: text.replace("interval: 0.3s", "interval: 60s"))
    await replicas.until_led_by(leader, follower)
    llama = tenant.deployment("llama", page.vllm(waiting=30, running=10), pods=1)
    metadata = {"smoothing.up": "0s", "smoothing.down": "10m"}
    chat = tenant.scaled_object("chat", target="llama", minimum=1, maximum=9, engine="vllm", **metadata)
    await until_all([leader, follower], (3, True), chat)
    await until(partial(scraped, follower, llama.pods[0].address), bool)
    llama.serve(page.vllm(waiting=0, running=140))
    await until_all([leader, follower], (9, True), chat)
    async with responses_to(follower.keda, chat) as responses:
        llama.serve(page.vllm(waiting=0, running=10))
        await leader.until_evidence(tenant.name, "chat", running=10.0)
        leader.process.kill()
        await replicas.until_led_by(follower)
        await follower.sweeps(5)
    assert responses == [(9, True)]


async def test_new_scale_target_starts_from_its_replicas_on_every_replica_and_after_the_leader_is_killed(
    replicas, tenant, page
):
    # The windows never fill: the present replicas remain the lower bound throughout.
    leader, follower = pair = [
        await replicas.start(
            edit=lambda text: text.replace("at_start: 0s", "at_start: 1h").replace("intervals: 5", "intervals: 200")
        )
        for _ in range(2)
    ]
    await replicas.until_led_by(leader, follower)
    tenant.deployment("small", page.vllm(waiting=0, running=16), pods=3)
    tenant.deployment("large", page.vllm(waiting=0, running=5), pods=20)
    chat = tenant.scaled_object("chat", target="small", minimum=1, maximum=40, engine="vllm")
    await until_all(pair, (3, True), chat)
    async with responses_to(leader.keda, chat) as one, responses_to(follower.keda, chat) as other:
        chat["spec"]["scaleTargetRef"]["name"] = "large"
        tenant.put(chat)
        for each in pair:
            await each.until_evidence(tenant.name, "chat", replicas_wanted=20, running=100.0)
        await until_all(pair, (20, True), chat)
        answered = list(one)
        leader.process.kill()
        await replicas.until_led_by(follower)
        await follower.sweeps(5)
    assert [answer[0] for answer in answered if isinstance(answer, tuple)] == [3, 20]
    assert [answer[0] for answer in other if isinstance(answer, tuple)] == [3, 20]


async def test_wake_up_reaches_the_streams_of_every_replica(replicas, tenant, page):
    leader, *followers = [await replicas.start() for _ in range(3)]
    await replicas.until_led_by(leader, *followers)
    front = tenant.service("front", page.epp(held=0, ready=1))
    tenant.deployment("llama")
    chat = tenant.scaled_object("chat", target="llama", minimum=0, maximum=9, engine="vllm", gateway="front", **QUICK)
    await until_all(replicas.all, (0, False), chat)
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(each.keda.pushes(chat)) for each in replicas.all]
        assert [await pushed() for pushed in streams] == [False] * 3
        front.body = page.epp(held=20, ready=1)
        assert [await pushed() for pushed in streams] == [True] * 3
    await until_all(replicas.all, (2, True), chat)


@pytest.fixture
async def pair(replicas, tenant, page):
    """Two replicas, the first of which leads; a workload that needs 3 replicas, on which both agree."""
    both = [await replicas.start() for _ in range(2)]
    await replicas.until_led_by(*both)
    replicas.llama = tenant.deployment("llama", page.vllm(waiting=30, running=10), pods=1)
    tenant.service("front", page.epp(held=0, ready=1))
    metadata = {**QUICK, "smoothing.down": "60s"}  # shows a replica that has lost its state
    replicas.chat = tenant.scaled_object(
        "chat", target="llama", minimum=0, maximum=9, engine="vllm", gateway="front", **metadata
    )
    await until_all(both, (3, True), replicas.chat)
    return both


async def test_leader_killed_in_a_burst_changes_no_decision_and_one_follower_leads(replicas, pair, page):
    leader, *followers = trio = [*pair, await replicas.start()]
    await replicas.until_led_by(*trio)
    async with AsyncExitStack() as stack:
        all_responses = [await stack.enter_async_context(responses_to(each.keda, replicas.chat)) for each in followers]
        replicas.llama.serve(page.vllm(waiting=990, running=10))
        await until_all(trio, (9, True), replicas.chat)
        async with replicas.round_robin(replicas.chat) as keda_responses:
            await until(partial(length, keda_responses), lambda number: number == 1)
            leader.process.kill()
            await until(partial(leaders, followers), lambda number: number == 1)
            for each in followers:
                await until(partial(replicas.role, each), lambda role: role in {"leader", "follower"})
                await each.sweeps(5)
    assert set(keda_responses) <= {(9, True), grpc.StatusCode.UNAVAILABLE}  # a call in progress when it was killed
    for responses in all_responses:
        assert responses[-1] == (9, True)
        assert responses == sorted(responses), "in a burst it only rises"
    assert len(replicas.writes()) == 2


async def test_drained_leader_is_replaced_at_once_and_changes_no_decision(replicas, pair):
    leader, other = pair
    async with replicas.round_robin(replicas.chat) as responses:
        leader.process.send_signal(signal.SIGTERM)
        await replicas.until_led_by(other)
        await other.sweeps(5)
    assert responses == [(3, True)]
    assert replicas.writes() == ["replica-0", "", "replica-1"]


async def test_frozen_leader_follows_after_it_is_thawed(replicas, pair, page):
    leader, other = pair
    async with responses_to(other.keda, replicas.chat) as responses:
        leader.process.send_signal(signal.SIGSTOP)
        await replicas.until_led_by(other)
        replicas.llama.serve(page.vllm(waiting=990, running=10))
        await until_all([other], (9, True), replicas.chat)
        leader.process.send_signal(signal.SIGCONT)
        await replicas.until_led_by(other, leader)
        await until_all(pair, (9, True), replicas.chat)
        await leader.sweeps(5)
    assert responses == [(3, True), (9, True)]
    assert replicas.writes() == ["replica-0", "replica-1"]


async def test_wake_up_on_the_connection_of_a_frozen_replica_arrives_once_it_is_killed(replicas, tenant, page):
    """KEDA has one connection. While its replica is frozen nothing arrives there, not even an error: the kernel still
    acknowledges. The liveness probe ends it.
    """
    frozen, other = [await replicas.start() for _ in range(2)]
    await replicas.until_led_by(frozen, other)
    front = tenant.service("front", page.epp(held=0, ready=1))
    tenant.deployment("llama")
    chat = tenant.scaled_object("chat", target="llama", minimum=0, maximum=9, engine="vllm", gateway="front", **QUICK)
    await until_all(replicas.all, (0, False), chat)
    async with grpc.aio.insecure_channel(f"ipv4:{frozen.grpc},{other.grpc}") as channel:  # pick_first, in this order
        keda = Keda(channel)
        async with keda.pushes(chat) as pushed:
            assert await pushed() is False
            frozen.process.send_signal(signal.SIGSTOP)
            poll = asyncio.create_task(keda.answer(chat))
            push = asyncio.create_task(pushed())
            front.body = page.epp(held=20, ready=1)
            await other.keda.until((2, True), chat)  # the other replica has the decision, but KEDA does not call it
            assert not poll.done()
            assert not push.done()
            frozen.process.kill()
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await push
            assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
            assert await poll is grpc.StatusCode.UNAVAILABLE

        async def first_push():
            """Of a new stream. The first one may still begin on the broken connection: KEDA opens another."""
            try:
                async with keda.pushes(chat) as pushed:
                    return await pushed()
            except grpc.aio.AioRpcError as error:
                return error.code()

        assert await until(first_push, lambda answer: answer is not grpc.StatusCode.UNAVAILABLE) is True


async def test_clocks_five_minutes_apart_change_no_decision_and_no_age(replicas, tenant, page):
    llama = tenant.deployment("llama", page.vllm(waiting=30, running=10), pods=1)
    chat = tenant.scaled_object("chat", target="llama", minimum=1, maximum=9, engine="vllm", **QUICK)
    ahead, right, behind = [await replicas.start(offset_s=offset_s) for offset_s in (300.0, 0.0, -300.0)]
    await replicas.until_led_by(ahead, right, behind)
    await until_all(replicas.all, (3, True), chat)
    async with AsyncExitStack() as stack:
        all_responses = [await stack.enter_async_context(responses_to(each.keda, chat)) for each in replicas.all]
        for requests, answer in ((1000, 9), (100, 9)):
            llama.serve(page.vllm(waiting=0, running=requests))
            await until_all(replicas.all, (answer, True), chat)
        for each in replicas.all:
            age = await each.metric(f'tidegate_reading_age_seconds{{namespace="{tenant.name}",workload="chat"}}')
            assert 0.0 <= age < 60.0
        ahead.process.send_signal(signal.SIGTERM)
        await until(partial(leaders, [right, behind]), lambda number: number == 1)
        await right.sweeps(5)
        await behind.sweeps(5)
    for responses in all_responses[1:]:
        assert responses[:2] == [(3, True), (9, True)]
        assert {answer for answer in responses if not isinstance(answer, tuple)} == set()
    assert all_responses[1][:2] == all_responses[2][:2]


async def test_leader_keeps_leading_and_followers_keep_following_without_an_api_server(replicas, pair, page):
    leader, follower = pair
    async with responses_to(leader.keda, replicas.chat) as one, responses_to(follower.keda, replicas.chat) as other:
        replicas.cluster.fake.refuse()
        await until(partial(logged, leader, "Lease access failed"), bool)
        await leader.sweeps(50)  # 5 s, longer than the Lease: a free one would change holder
        assert [await replicas.role(each) for each in pair] == ["leader", "follower"]
        replicas.llama.serve(page.vllm(waiting=990, running=10))
        await until_all(pair, (9, True), replicas.chat)
        replicas.cluster.fake.mend()
        await until(partial(logged, leader, "Lease access recovered"), bool)
    assert one == other == [(3, True), (9, True)]
    assert replicas.writes() == ["replica-0"]


async def test_replicas_that_cannot_reach_each_other_decide_alone_without_errors(replicas, pair, page):
    fake, (leader, other) = replicas.cluster.fake, pair
    async with responses_to(leader.keda, replicas.chat) as one, responses_to(other.keda, replicas.chat) as two:
        fake.shown_lease = unreachable_leader
        await until(partial(replicas.role, other), lambda role: role == "alone")
        replicas.llama.serve(page.vllm(waiting=990, running=10))
        await until_all(pair, (9, True), replicas.chat)
        fake.shown_lease = lambda document: document
        await replicas.until_led_by(*pair)
    assert one == two == [(3, True), (9, True)]
    assert await other.metric('tidegate_peer_fetch_failures_total{kind="connection"}') >= 1
    assert replicas.writes() == ["replica-0"]


async def test_rolling_replacement_of_replicas_changes_no_decision(replicas, pair):
    async with AsyncExitStack() as stack:
        responses = [await stack.enter_async_context(responses_to(each.keda, replicas.chat)) for each in pair]
        for old in pair:
            new = await replicas.start()  # KEDA calls it from here on: it is ready
            responses.append(await stack.enter_async_context(responses_to(new.keda, replicas.chat)))
            old.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(old.process.wait, SOON_S)
        await until(partial(leaders, replicas.all[2:]), lambda number: number == 1)
        for each in replicas.all[2:]:
            await each.sweeps(5)
    # The last response of each old replica is UNAVAILABLE.
    assert [each[0] for each in responses] == [(3, True)] * 4
    assert responses[2:] == [[(3, True)]] * 2


def unreachable_leader(document):
    """The Lease with an address where no server listens."""
    annotations = document["metadata"]["annotations"] | {"tidegate.dev/peer-address": "127.0.0.1:1"}
    return document | {"metadata": document["metadata"] | {"annotations": annotations}}


async def leaders(replicas):
    """The number of leaders among these replicas."""
    return sum([await each.metric("tidegate_leader") for each in replicas])


async def scraped(replica, address):
    """Whether the replica has ever scraped this pod."""
    lines = (await replica.get("/metrics")).text.splitlines()
    return any(line.startswith("tidegate_scrape_up{") and address in line and line.endswith(" 1.0") for line in lines)


async def length(sequence):
    return len(sequence)


async def logged(replica, event):
    return replica.logged(event)


async def test_only_the_leader_writes_events(replicas, tenant, page):
    leader, follower = await replicas.start(), await replicas.start()
    await replicas.until_led_by(leader, follower)
    llama = tenant.deployment("llama", page.vllm(waiting=0, running=5), pods=2)
    chat = tenant.scaled_object("chat", target="llama", minimum=1, maximum=4, engine="vllm")
    await until_all(replicas.all, (1, True), chat)
    llama.serve(page.vllm(waiting=190, running=10))
    await until_all(replicas.all, (4, True), chat)

    async def reasons():
        # A busy machine may delay a scrape so long that the leader writes of it, too.
        return {event["reason"] for (namespace, _), event in tenant.fake.events.items() if namespace == tenant.name}

    await until(reasons, lambda written: "Capped" in written)
    await until(partial(leader.metric, "tidegate_events_written_total"), lambda written: written >= 1.0)
    await follower.sweeps(3)
    assert await follower.metric("tidegate_events_written_total") == 0.0


class ForgedLeader:
    """Responds as the leader's listener does, with the certificate of the replicas, with any decisions.

    decisions: replicas by workload. ahead_s: by how much its last sweep is after its present. fetches: their number.
    """

    def __init__(self):
        self.decisions, self.ahead_s, self.address, self.fetches = {}, 0.0, "", 0

    async def answer(self, _request):
        self.fetches += 1
        now = time.time()
        changed = [Decision(key, number, number != 0, Reason.SERVING, now) for key, number in self.decisions.items()]
        return web.Response(
            body=encode(Frame("forged", self.fetches, now, now, None, tuple(changed))).replace(
                f'"at":{now!r}'.encode(), f'"at":{now + self.ahead_s!r}'.encode()
            )
        )

    def shown(self, document):
        """The Lease with this leader's address."""
        annotations = document["metadata"]["annotations"] | {"tidegate.dev/peer-address": self.address}
        return document | {"metadata": document["metadata"] | {"annotations": annotations}}


@pytest.fixture
async def forged(tmp_path, replicas):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    leader, app = ForgedLeader(), web.Application()
    app.router.add_get("/peers/v1/board", leader.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    leader.address = f"127.0.0.1:{runner.addresses[0][1]}"
    yield leader
    replicas.cluster.fake.shown_lease = lambda document: document
    await runner.cleanup()


@pytest.fixture
async def two_workloads(replicas, tenant, page):
    """Two replicas of Tidegate, and the workloads chat and code, both with demand for 3 replicas and a maximum of 9."""
    leader, follower = [await replicas.start() for _ in range(2)]
    await replicas.until_led_by(leader, follower)
    scaled = []
    for name in ("chat", "code"):
        tenant.deployment(name, page.vllm(waiting=30, running=10), pods=1)
        scaled.append(tenant.scaled_object(name, target=name, minimum=1, maximum=9, engine="vllm", **QUICK))
    for each in scaled:
        await until_all([leader, follower], (3, True), each)
    return follower, *scaled


async def test_follower_refuses_a_decision_outside_its_own_bounds(replicas, forged, two_workloads, tenant):
    follower, chat, code = two_workloads
    forged.decisions = {WorkloadKey(tenant.name, "chat"): 500, WorkloadKey(tenant.name, "code"): 4}
    async with responses_to(follower.keda, chat) as responses:
        replicas.cluster.fake.shown_lease = forged.shown
        await until_all([follower], (4, True), code)
        forged.decisions = {WorkloadKey(tenant.name, "chat"): 0, WorkloadKey(tenant.name, "code"): 5}
        await until_all([follower], (5, True), code)
    assert responses == [(3, True)]
    assert follower.logged("leader decision refused")


async def test_follower_answers_by_itself_while_the_leaders_board_is_dated_in_the_future(
    replicas, forged, two_workloads, tenant
):
    follower, chat, _ = two_workloads
    forged.decisions, forged.ahead_s = {WorkloadKey(tenant.name, "chat"): 7}, 1e6
    async with responses_to(follower.keda, chat) as responses:
        replicas.cluster.fake.shown_lease = forged.shown
        before = forged.fetches
        await until(partial(grown, forged, before), bool)
        await until(partial(replicas.role, follower), lambda role: role == "alone")
        await follower.sweeps(3)
    assert responses == [(3, True)]
    assert await follower.metric('tidegate_peer_fetch_failures_total{kind="bad_frame"}') >= 1


async def grown(forged, before):
    return forged.fetches > before
