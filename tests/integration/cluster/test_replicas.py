"""Several Tidegates that tell one story: the leader killed, frozen, drained, cut off; clocks apart; no API server."""

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
from tests.fakes.warm import WarmProcess

from .keda import Keda
from .place import namespace_of
from .process import Tidegate, end
from .waiting import SOON_S, meanwhile, until

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
QUICK = {"keep_warm": "1s", "smoothing.up": "0s", "smoothing.down": "0.3s"}
ROUND_ROBIN = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})


class Replicas:
    """Those of one storyboard, each a process; all ask the same API for the same Lease."""

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
        """One more, once it is ready. offset_s: of its clock. edit: of its configuration."""
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
        said = log.read_text(encoding="utf-8")
        assert process.returncode in {0, -signal.SIGKILL}, said
        assert "raceback" not in said, said

    def writes(self):
        """Who wrote the Lease, one after the other; "" is: it was given back."""
        names = [holder for _, name, holder in self.cluster.fake.lease_writes if name == self.name]
        return [holder.partition("_")[0] for holder, _ in groupby(names)]

    @asynccontextmanager
    async def round_robin(self, scaled):
        """What KEDA hears, which goes round all of them: each change of it, in order."""
        target = "ipv4:" + ",".join(each.grpc for each in self.all)
        options = [("grpc.service_config", ROUND_ROBIN)]
        async with (
            grpc.aio.insecure_channel(target, options=options) as channel,
            told_to(Keda(channel), scaled) as said,
        ):
            yield said

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
    """One of our own: its API server goes away now and then."""
    with new_cluster() as made:
        yield made


@pytest.fixture
async def replicas(cluster, tmp_path, request):
    cluster.fake.mend()
    async with AsyncExitStack() as stack:
        yield Replicas(cluster, tmp_path, namespace_of(request.node.name), stack)


@asynccontextmanager
async def told_to(keda, scaled):
    """What KEDA is answered while the block runs: each change of it, in order."""
    said = []

    async def ask():
        answer = await keda.answer(scaled)
        if answer is grpc.StatusCode.CANCELLED:  # grpc/grpc#41785: KEDA asks once more, at once
            answer = await keda.answer(scaled)
        if not said or said[-1] != answer:
            said.append(answer)

    await ask()
    async with meanwhile(ask):
        yield said
    await ask()


async def all_say(replicas, answer, scaled):
    for each in replicas:
        await each.keda.until(answer, scaled)


async def test_replicas_of_tidegate_agree_in_that_order_whatever_a_follower_sees_itself(replicas, place, page):
    leader = await replicas.start()
    # It scrapes seldom: what it says soon after a change, it has from the leader.
    follower = await replicas.start(edit=lambda text: text.replace("interval: 0.3s", "interval: 20s"))
    await replicas.until_led_by(leader, follower)
    llama = place.deployment("llama", page.vllm(waiting=30, running=10), pods=1)
    words = {"smoothing.up": "0s", "smoothing.down": "0s"}
    chat = place.scaled_object("chat", target="llama", minimum=1, maximum=9, engine="vllm", **words)
    await all_say([leader, follower], (3, True), chat)
    async with told_to(leader.keda, chat) as one, told_to(follower.keda, chat) as other:
        for requests, answer in ((60, 4), (80, 5), (100, 7), (1000, 9)):
            llama.say(page.vllm(waiting=0, running=requests))
            await all_say([leader, follower], (answer, True), chat)
    assert one == other
    assert [number for number, _ in one] == [3, 4, 5, 7, 9]
    assert await follower.metric("tidegate_peer_board_age_seconds") is not None
    assert await leader.metric("tidegate_peer_board_age_seconds") is None


async def test_what_the_leader_has_seen_is_not_lost_with_it(replicas, place, page):
    leader = await replicas.start()
    # It scrapes once a minute, the first time before the burst.
    follower = await replicas.start(edit=lambda text: text.replace("interval: 0.3s", "interval: 60s"))
    await replicas.until_led_by(leader, follower)
    llama = place.deployment("llama", page.vllm(waiting=30, running=10), pods=1)
    words = {"smoothing.up": "0s", "smoothing.down": "10m"}
    chat = place.scaled_object("chat", target="llama", minimum=1, maximum=9, engine="vllm", **words)
    await all_say([leader, follower], (3, True), chat)
    await until(partial(scraped, follower, llama.pods[0].address), bool)
    llama.say(page.vllm(waiting=0, running=140))
    await all_say([leader, follower], (9, True), chat)
    async with told_to(follower.keda, chat) as said:
        llama.say(page.vllm(waiting=0, running=10))
        await leader.until_evidence(place.name, "chat", running=10.0)
        leader.process.kill()
        await replicas.until_led_by(follower)
        await follower.sweeps(5)
    assert said == [(9, True)]


async def test_new_scale_target_starts_from_its_replicas_on_every_replica_and_after_the_leader_is_killed(
    replicas, place, page
):
    # The windows never fill: what the cluster has stays the least all along.
    leader, follower = pair = [
        await replicas.start(
            edit=lambda text: text.replace("at_start: 0s", "at_start: 1h").replace("intervals: 5", "intervals: 200")
        )
        for _ in range(2)
    ]
    await replicas.until_led_by(leader, follower)
    place.deployment("small", page.vllm(waiting=0, running=16), pods=3)
    place.deployment("large", page.vllm(waiting=0, running=5), pods=20)
    chat = place.scaled_object("chat", target="small", minimum=1, maximum=40, engine="vllm")
    await all_say(pair, (3, True), chat)
    async with told_to(leader.keda, chat) as one, told_to(follower.keda, chat) as other:
        chat["spec"]["scaleTargetRef"]["name"] = "large"
        place.put(chat)
        for each in pair:
            await each.until_evidence(place.name, "chat", replicas_wanted=20, running=100.0)
        await all_say(pair, (20, True), chat)
        answered = list(one)
        leader.process.kill()
        await replicas.until_led_by(follower)
        await follower.sweeps(5)
    assert [answer[0] for answer in answered if isinstance(answer, tuple)] == [3, 20]
    assert [answer[0] for answer in other if isinstance(answer, tuple)] == [3, 20]


async def test_a_wake_up_reaches_the_streams_of_every_replica(replicas, place, page):
    leader, *followers = [await replicas.start() for _ in range(3)]
    await replicas.until_led_by(leader, *followers)
    front = place.service("front", page.epp(held=0, ready=1))
    place.deployment("llama")
    chat = place.scaled_object("chat", target="llama", minimum=0, maximum=9, engine="vllm", gateway="front", **QUICK)
    await all_say(replicas.all, (0, False), chat)
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(each.keda.pushes(chat)) for each in replicas.all]
        assert [await pushed() for pushed in streams] == [False] * 3
        front.text = page.epp(held=20, ready=1)
        assert [await pushed() for pushed in streams] == [True] * 3
    await all_say(replicas.all, (2, True), chat)


@pytest.fixture
async def pair(replicas, place, page):
    """Two replicas, of which the first leads; a workload that has 3 replicas' worth of work, and both say so."""
    all_of_them = [await replicas.start() for _ in range(2)]
    await replicas.until_led_by(*all_of_them)
    replicas.llama = place.deployment("llama", page.vllm(waiting=30, running=10), pods=1)
    place.service("front", page.epp(held=0, ready=1))
    words = {**QUICK, "smoothing.down": "60s"}  # so that whoever has forgotten the past is found out
    replicas.chat = place.scaled_object(
        "chat", target="llama", minimum=0, maximum=9, engine="vllm", gateway="front", **words
    )
    await all_say(all_of_them, (3, True), replicas.chat)
    return all_of_them


async def test_a_leader_that_is_killed_in_a_burst_changes_no_answer_and_one_other_leads(replicas, pair, page):
    leader, *others = trio = [*pair, await replicas.start()]
    await replicas.until_led_by(*trio)
    async with AsyncExitStack() as stack:
        heard = [await stack.enter_async_context(told_to(each.keda, replicas.chat)) for each in others]
        replicas.llama.say(page.vllm(waiting=990, running=10))
        await all_say(trio, (9, True), replicas.chat)
        async with replicas.round_robin(replicas.chat) as keda_heard:
            await until(partial(length, keda_heard), lambda number: number == 1)
            leader.process.kill()
            await until(partial(leaders, others), lambda number: number == 1)
            for each in others:
                await until(partial(replicas.role, each), lambda role: role in {"leader", "follower"})
                await each.sweeps(5)
    assert set(keda_heard) <= {(9, True), grpc.StatusCode.UNAVAILABLE}  # a call under way when it was killed
    for said in heard:
        assert said[-1] == (9, True)
        assert said == sorted(said), "in a burst it only rises"
    assert len(replicas.writes()) == 2


async def test_a_leader_that_is_drained_lets_another_lead_at_once_and_changes_no_answer(replicas, pair):
    leader, other = pair
    async with replicas.round_robin(replicas.chat) as heard:
        leader.process.send_signal(signal.SIGTERM)
        await replicas.until_led_by(other)
        await other.sweeps(5)
    assert heard == [(3, True)]
    assert replicas.writes() == ["replica-0", "", "replica-1"]


async def test_a_leader_that_was_frozen_follows_when_it_is_thawed(replicas, pair, page):
    leader, other = pair
    async with told_to(other.keda, replicas.chat) as heard:
        leader.process.send_signal(signal.SIGSTOP)
        await replicas.until_led_by(other)
        replicas.llama.say(page.vllm(waiting=990, running=10))
        await all_say([other], (9, True), replicas.chat)
        leader.process.send_signal(signal.SIGCONT)
        await replicas.until_led_by(other, leader)
        await all_say(pair, (9, True), replicas.chat)
        await leader.sweeps(5)
    assert heard == [(3, True), (9, True)]
    assert replicas.writes() == ["replica-0", "replica-1"]


async def test_a_wake_up_on_the_connection_of_a_frozen_replica_arrives_once_it_is_killed(replicas, place, page):
    """KEDA has one connection. While its replica stands still nothing arrives there, not even an error: the kernel goes
    on acknowledging. It is the liveness probe that ends it.
    """
    frozen, other = [await replicas.start() for _ in range(2)]
    await replicas.until_led_by(frozen, other)
    front = place.service("front", page.epp(held=0, ready=1))
    place.deployment("llama")
    chat = place.scaled_object("chat", target="llama", minimum=0, maximum=9, engine="vllm", gateway="front", **QUICK)
    await all_say(replicas.all, (0, False), chat)
    async with grpc.aio.insecure_channel(f"ipv4:{frozen.grpc},{other.grpc}") as channel:  # pick_first, in this order
        keda = Keda(channel)
        async with keda.pushes(chat) as pushed:
            assert await pushed() is False
            frozen.process.send_signal(signal.SIGSTOP)
            poll = asyncio.create_task(keda.answer(chat))
            push = asyncio.create_task(pushed())
            front.text = page.epp(held=20, ready=1)
            await other.keda.until((2, True), chat)  # the other one knows, and KEDA does not ask it
            assert not poll.done()
            assert not push.done()
            frozen.process.kill()
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await push
            assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
            assert await poll is grpc.StatusCode.UNAVAILABLE
        async with keda.pushes(chat) as pushed:
            assert await pushed() is True


async def test_clocks_that_are_five_minutes_apart_change_no_answer_and_no_age(replicas, place, page):
    llama = place.deployment("llama", page.vllm(waiting=30, running=10), pods=1)
    chat = place.scaled_object("chat", target="llama", minimum=1, maximum=9, engine="vllm", **QUICK)
    ahead, right, behind = [await replicas.start(offset_s=offset_s) for offset_s in (300.0, 0.0, -300.0)]
    await replicas.until_led_by(ahead, right, behind)
    await all_say(replicas.all, (3, True), chat)
    async with AsyncExitStack() as stack:
        heard = [await stack.enter_async_context(told_to(each.keda, chat)) for each in replicas.all]
        for requests, answer in ((1000, 9), (100, 9)):
            llama.say(page.vllm(waiting=0, running=requests))
            await all_say(replicas.all, (answer, True), chat)
        for each in replicas.all:
            age = await each.metric(f'tidegate_reading_age_seconds{{namespace="{place.name}",workload="chat"}}')
            assert 0.0 <= age < 60.0
        ahead.process.send_signal(signal.SIGTERM)
        await until(partial(leaders, [right, behind]), lambda number: number == 1)
        await right.sweeps(5)
        await behind.sweeps(5)
    for said in heard[1:]:
        assert said[:2] == [(3, True), (9, True)]
        assert {answer for answer in said if not isinstance(answer, tuple)} == set()
    assert heard[1][:2] == heard[2][:2]


async def test_without_an_api_server_the_leader_leads_on_and_the_others_follow(replicas, pair, page):
    leader, follower = pair
    async with told_to(leader.keda, replicas.chat) as one, told_to(follower.keda, replicas.chat) as other:
        replicas.cluster.fake.refuse()
        await until(partial(logged, leader, "Lease access failed"), bool)
        await leader.sweeps(50)  # 5 s, when it would have led no more, and the Lease would have been another's
        assert [await replicas.role(each) for each in pair] == ["leader", "follower"]
        replicas.llama.say(page.vllm(waiting=990, running=10))
        await all_say(pair, (9, True), replicas.chat)
        replicas.cluster.fake.mend()
        await until(partial(logged, leader, "Lease access recovered"), bool)
    assert one == other == [(3, True), (9, True)]
    assert replicas.writes() == ["replica-0"]


async def test_where_the_replicas_cannot_reach_each_other_each_answers_and_nobody_errs(replicas, pair, page):
    fake, (leader, other) = replicas.cluster.fake, pair
    async with told_to(leader.keda, replicas.chat) as one, told_to(other.keda, replicas.chat) as two:
        fake.shown_lease = elsewhere
        await until(partial(replicas.role, other), lambda role: role == "alone")
        replicas.llama.say(page.vllm(waiting=990, running=10))
        await all_say(pair, (9, True), replicas.chat)
        fake.shown_lease = lambda document: document
        await replicas.until_led_by(*pair)
    assert one == two == [(3, True), (9, True)]
    assert await other.metric('tidegate_peer_fetch_failures_total{kind="connection"}') >= 1
    assert replicas.writes() == ["replica-0"]


async def test_replicas_are_replaced_one_after_the_other_and_no_answer_changes(replicas, pair):
    async with AsyncExitStack() as stack:
        said = [await stack.enter_async_context(told_to(each.keda, replicas.chat)) for each in pair]
        for old in pair:
            new = await replicas.start()  # from here on KEDA asks it: it is ready
            said.append(await stack.enter_async_context(told_to(new.keda, replicas.chat)))
            old.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(old.process.wait, SOON_S)
        await until(partial(leaders, replicas.all[2:]), lambda number: number == 1)
        for each in replicas.all[2:]:
            await each.sweeps(5)
    # Of the old ones, the last answer is that nobody is there any more.
    assert [each[0] for each in said] == [(3, True)] * 4
    assert said[2:] == [[(3, True)]] * 2


def elsewhere(document):
    """The Lease, with an address where nobody listens."""
    annotations = document["metadata"]["annotations"] | {"tidegate.dev/peer-address": "127.0.0.1:1"}
    return document | {"metadata": document["metadata"] | {"annotations": annotations}}


async def leaders(replicas):
    """How many of these lead."""
    return sum([await each.metric("tidegate_leader") for each in replicas])


async def scraped(replica, address):
    """Has it ever seen a page of this pod?"""
    lines = (await replica.get("/metrics")).text.splitlines()
    return any(line.startswith("tidegate_scrape_up{") and address in line and line.endswith(" 1.0") for line in lines)


async def length(sequence):
    return len(sequence)


async def logged(replica, event):
    return replica.logged(event)


async def test_of_several_replicas_only_the_leader_writes_events(replicas, place, page):
    leader, follower = await replicas.start(), await replicas.start()
    await replicas.until_led_by(leader, follower)
    llama = place.deployment("llama", page.vllm(waiting=0, running=5), pods=2)
    chat = place.scaled_object("chat", target="llama", minimum=1, maximum=4, engine="vllm")
    await all_say(replicas.all, (1, True), chat)
    llama.say(page.vllm(waiting=190, running=10))
    await all_say(replicas.all, (4, True), chat)
    await leader.until_metric("tidegate_events_written_total", 1.0)
    await follower.sweeps(3)
    assert await follower.metric("tidegate_events_written_total") == 0.0
    [capped] = [document for (namespace, _), document in place.fake.events.items() if namespace == place.name]
    assert (capped["reason"], capped["metadata"]["namespace"]) == ("Capped", place.name)


class ForgedLeader:
    """Answers as the leader's listener does, with the certificate of the replicas, whatever a test says.

    decisions: replicas by workload. ahead_s: by how much its last sweep is after its present. asked: how often.
    """

    def __init__(self):
        self.decisions, self.ahead_s, self.address, self.asked = {}, 0.0, "", 0

    async def answer(self, _request):
        self.asked += 1
        now = time.time()
        changed = [Decision(key, number, number != 0, Reason.SERVING, now) for key, number in self.decisions.items()]
        return web.Response(
            body=encode(Frame("forged", self.asked, now, now, None, tuple(changed))).replace(
                f'"at":{now!r}'.encode(), f'"at":{now + self.ahead_s!r}'.encode()
            )
        )

    def shown(self, document):
        """The Lease, with its address."""
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
async def two_workloads(replicas, place, page):
    """Two replicas of Tidegate, and chat and code, of which both have 3 replicas' worth of work and a maximum of 9."""
    leader, follower = [await replicas.start() for _ in range(2)]
    await replicas.until_led_by(leader, follower)
    scaled = []
    for name in ("chat", "code"):
        place.deployment(name, page.vllm(waiting=30, running=10), pods=1)
        scaled.append(place.scaled_object(name, target=name, minimum=1, maximum=9, engine="vllm", **QUICK))
    for each in scaled:
        await all_say([leader, follower], (3, True), each)
    return follower, *scaled


async def test_follower_refuses_a_decision_outside_its_own_bounds(replicas, forged, two_workloads, place):
    follower, chat, code = two_workloads
    forged.decisions = {WorkloadKey(place.name, "chat"): 500, WorkloadKey(place.name, "code"): 4}
    async with told_to(follower.keda, chat) as said:
        replicas.cluster.fake.shown_lease = forged.shown
        await all_say([follower], (4, True), code)
        forged.decisions = {WorkloadKey(place.name, "chat"): 0, WorkloadKey(place.name, "code"): 5}
        await all_say([follower], (5, True), code)
    assert said == [(3, True)]
    assert follower.logged("leader decision refused")


async def test_follower_answers_by_itself_while_the_leaders_board_is_dated_in_the_future(
    replicas, forged, two_workloads, place
):
    follower, chat, _ = two_workloads
    forged.decisions, forged.ahead_s = {WorkloadKey(place.name, "chat"): 7}, 1e6
    async with told_to(follower.keda, chat) as said:
        replicas.cluster.fake.shown_lease = forged.shown
        before = forged.asked
        await until(partial(grown, forged, before), bool)
        await until(partial(replicas.role, follower), lambda role: role == "alone")
        await follower.sweeps(3)
    assert said == [(3, True)]
    assert await follower.metric('tidegate_peer_fetch_failures_total{kind="bad_frame"}') >= 1


async def grown(forged, before):
    return forged.asked > before
