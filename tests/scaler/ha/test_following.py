"""A follower publishes the leader's Board over real TLS, whatever the clocks, and only while the leader runs."""

import asyncio
import gzip
import json
from contextlib import suppress
from dataclasses import replace

import aiohttp
import pytest
import trustme
from aiohttp import web

from exporter.kubernetes.protocol import ApiFailure
from exporter.model import WorkloadKey
from scaler.ha import follower as followers
from scaler.ha import leader as servers
from scaler.ha.frame import Copy, Frame, encode
from scaler.ha.leader import PATH, client_context
from scaler.model import Evidence

CHAT = WorkloadKey("ai", "chat")
SERVER = "tidegate.tidegate.svc"


async def test_follower_copies_the_whole_board_and_then_its_changes(pair):
    leader, follower = pair
    assert await follower.poll() is None
    assert follower.replicas == {"chat": 3, "code": 0}
    leader.decide(chat=4)
    assert await follower.poll() is None
    assert follower.replicas == {"chat": 4, "code": 0}
    leader.decide()
    assert await follower.poll() is None
    # State is sent with the Board: of all workloads, then of the changed one, then none.
    assert leader.requested == [None, {"chat"}]
    assert [state for state, _ in follower.states] == [b"all of it", b"some of it"]


async def test_follower_gets_the_evidence_of_the_leaders_last_sweep(pair):
    leader, follower = pair

    async def renew():
        entry = leader.publisher.get(CHAT)
        leader.publisher.publish([replace(entry, evidence=Evidence(waiting=7.0))], leader.publisher.local.at)

    leader.publisher.renew = renew
    assert await follower.poll() is None
    assert follower.publisher.get(CHAT).evidence.waiting == 7.0


async def test_times_are_shifted_to_the_followers_clock(world, pair):
    _, follower = pair
    world.now += 2.0
    assert await follower.poll() is None
    entry = follower.publisher.get(CHAT)
    assert (entry.decided_at, entry.measured_at, follower.publisher.board.at) == (1000.0, 999.0, 1000.0)
    assert [offset for _, offset in follower.states] == [-300.0]


async def test_leaders_board_counts_for_three_ticks_and_then_the_followers_own(world, pair):
    _, follower = pair
    await follower.poll()
    for later, replicas in ((3.0, {"chat": 3, "code": 0}), (0.1, {"chat": 7, "code": 7})):
        world.now += later
        follower.follower.settle(world.now)
        assert follower.replicas == replicas


async def test_leader_whose_ticks_fail_is_not_followed(world, pair):
    _, follower = pair
    world.now += 3.1
    assert await follower.poll() == "stale"
    assert follower.replicas == {"chat": 7, "code": 7}


async def test_late_response_is_ignored(world, pair):
    leader, follower = pair

    def frozen(_workloads):
        world.now += 300.0  # the machine was suspended between request and response
        return lambda: b""

    leader.server._state = frozen
    assert await follower.poll() == "late"
    assert follower.replicas == {"chat": 7, "code": 7}
    assert follower.follower.copy == Copy()


async def test_new_leader_sends_the_whole_board(peer, pair):
    leader, follower = pair
    await follower.poll()
    await leader.elector.release()
    other = await peer("c")
    other.decide(chat=5, code=5)
    await other.elector.update()
    await follower.elector.update()
    assert await follower.poll() is None
    assert (follower.replicas, other.requested) == ({"chat": 5, "code": 5}, [None])


async def test_changes_since_another_version_are_refused_and_the_whole_board_is_requested(pair, monkeypatch):
    leader, follower = pair
    await follower.poll()
    leader.decide(chat=4)
    with monkeypatch.context() as fault:
        fault.setattr(servers, "encode", lambda frame: encode(replace(frame, since=frame.since - 1)))
        assert await follower.poll() == "gap"
    assert await follower.poll() is None
    assert (follower.replicas, leader.requested) == ({"chat": 4, "code": 0}, [None, {"chat"}, None])


async def test_replica_that_does_not_lead_responds_so_at_once(pair, leases):
    leader, follower = pair
    await leader.elector.release()
    assert await follower.poll() == "not_leading"


async def test_fresh_board_counts_even_if_its_leader_steps_down(world, pair):
    leader, follower = pair
    await follower.poll()
    await leader.elector.release()
    assert await follower.poll() == "not_leading"
    assert follower.replicas == {"chat": 3, "code": 0}, "another replica may lead by then"
    world.now += 3.1
    follower.follower.settle(world.now)
    assert follower.replicas == {"chat": 7, "code": 7}


async def test_new_leader_publishes_its_own_board_at_once(pair):
    leader, follower = pair
    await follower.poll()
    await leader.elector.release()
    await follower.elector.update()
    assert await follower.poll() is None
    assert follower.elector.leads(follower.clock.now())
    assert follower.replicas == {"chat": 7, "code": 7}


async def test_leader_of_the_next_version_is_followed(pair, monkeypatch):
    _, follower = pair

    def newer(frame):
        line, _, state = encode(frame).partition(b"\n")
        document = json.loads(line) | {"tide": "high"}
        for each in document["changed"]:
            each |= {"tide": "high", "reason": "spring_tide"}
            each["evidence"] |= {"moon": {"full": True}}
        return json.dumps(document).encode() + b"\n" + state

    monkeypatch.setattr(servers, "encode", newer)
    assert await follower.poll() is None
    assert follower.replicas == {"chat": 3, "code": 0}


async def test_leader_of_the_previous_version_is_followed(pair, monkeypatch):
    _, follower = pair

    def older(frame):
        line, _, state = encode(frame).partition(b"\n")
        document = json.loads(line)
        for each in document["changed"]:
            del each["evidence"], each["observed"], each["idle_since"]
        return json.dumps(document).encode() + b"\n" + state

    monkeypatch.setattr(servers, "encode", older)
    assert await follower.poll() is None
    assert follower.replicas == {"chat": 3, "code": 0}


async def test_unknown_format_is_not_followed(pair, monkeypatch):
    _, follower = pair
    monkeypatch.setattr(servers, "encode", lambda _frame: b'{"format": 2}\n')
    assert await follower.poll() == "bad_frame"
    assert follower.replicas == {"chat": 7, "code": 7}


@pytest.mark.parametrize("certificate", ["KEDA", "none", "another authority"])
async def test_client_without_a_peer_certificate_gets_no_board(pair, pki, certificate):
    leader, _ = pair
    ca = trustme.CA() if certificate == "another authority" else None
    files = pki.files(certificate, name="keda-operator" if certificate == "KEDA" else "tidegate.tidegate.svc", ca=ca)
    pki.files(certificate + " ca")
    context = client_context(files._replace(ca=str(pki.folder / (certificate + " ca") / "ca.crt")), [].append)
    if certificate == "none":
        context = context._present.__class__(context._present.protocol)
        context.load_verify_locations(files.ca)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        request = session.get(f"https://{leader.address}{PATH}", server_hostname="tidegate.tidegate.svc")
        if certificate == "KEDA":
            async with request as response:
                body = await response.text()
            assert (response.status, body) == (403, "the certificate is not for tidegate.tidegate.svc\n")
        else:
            with pytest.raises(aiohttp.ClientError):
                await request
    assert leader.requested == []


async def test_server_with_another_name_is_refused(peer, pki):
    leader = await peer("a", files=pki.files("a", name="keda-operator"))
    follower = await peer("b")
    leader.decide(chat=3)
    follower.decide(chat=7)
    await leader.elector.update()
    await follower.elector.update()
    assert await follower.poll() == "connection"
    assert follower.replicas == {"chat": 7}


async def test_both_sides_use_rotated_certificates(pair, pki):
    _, follower = pair
    assert await follower.poll() is None
    new = trustme.CA()
    pki.files("a", ca=new)
    assert await follower.poll() == "connection"
    pki.files("b", ca=new)
    assert await follower.poll() is None


@pytest.mark.parametrize("query", ["version=x", "at=noon", "wait=long"])
async def test_invalid_query_is_refused(pair, query):
    leader, follower = pair
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=follower.follower._context)) as session:
        url = f"https://{leader.address}{PATH}?{query}"
        async with session.get(url, server_hostname="tidegate.tidegate.svc") as response:
            assert response.status == 400


async def test_api_server_failure_and_recovery_are_each_reported_once(pair, leases):
    leader, _ = pair
    leases.failure = ApiFailure(None, "get lease: no answer within 5 s")
    for _ in range(3):
        await leader.elector.update()
    leases.failure = None
    for _ in range(3):
        await leader.elector.update()
    assert leader.problems == ["get lease: no answer within 5 s", None]


async def test_conflict_on_the_lease_is_no_problem_and_the_loser_follows(peer, leases):
    one, other = await peer("a"), await peer("b")
    before = await leases.lease("tidegate", "tidegate")
    assert before is None
    await one.elector.update()
    # The other replica read the Lease before the first one wrote it.
    real, leases.lease = leases.lease, lambda namespace, name: none()
    await other.elector.update()
    leases.lease = real
    await other.elector.update()
    assert (other.problems, other.elector.leader().holder, leases.writes) == ([], "a", ["a"])


async def test_replica_with_a_delay_does_not_take_a_lease_that_was_just_released(world, pair, leases):
    leader, follower = pair
    follower.delay_s = 15.0
    await leader.elector.release()
    for later in (0.0, 14.0):
        world.now += later
        await follower.elector.update()
    assert leases.writes == ["a", ""]
    world.now += 1.0
    await follower.elector.update()
    assert leases.writes == ["a", "", "b"]


async def none():
    return None


async def test_lease_is_released_also_during_a_renewal(pair, leases, monkeypatch):
    leader, _ = pair
    arrived, response = asyncio.Event(), asyncio.Event()
    write_lease = leases.write_lease

    async def slow(namespace, name, lease):
        written = await write_lease(namespace, name, lease)
        if lease.holder:
            arrived.set()
            await response.wait()  # the API server has written it, and the response is still on its way
        return written

    monkeypatch.setattr(leases, "write_lease", slow)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(leader.elector.update())
        await arrived.wait()
        tasks.create_task(leader.elector.release())
        await asyncio.sleep(0)
        response.set()
    assert leases.lease_now.holder == ""


async def test_board_dated_in_the_future_is_not_followed(world, pair):
    leader, follower = pair
    leader.publisher.publish([], at=leader.clock.now() + 1e6)
    assert await follower.poll() == "bad_frame"
    assert follower.replicas == {"chat": 7, "code": 7}


async def test_board_becomes_stale_also_if_the_followers_clock_is_set_back(world, pair):
    _, follower = pair
    await follower.poll()
    world.now -= 3600.0
    follower.follower.settle(follower.clock.now())
    assert follower.replicas == {"chat": 7, "code": 7}


class EndlessBody:
    """A leader that responds with an endless body. sent: number of chunks sent."""

    def __init__(self, chunk, *, status=200, headers=()):
        self.chunk, self.status, self.headers, self.sent = chunk, status, dict(headers), 0

    async def __call__(self, request):
        response = web.StreamResponse(status=self.status, headers=self.headers)
        await response.prepare(request)
        with suppress(ConnectionError):
            while self.sent < MANY:
                await response.write(self.chunk)
                self.sent += 1
        return response


MANY = 10_000


@pytest.mark.parametrize(("status", "failure"), [(200, "too_large"), (500, "http_500")])
async def test_endless_response_is_not_read_to_its_end(pair, monkeypatch, status, failure):
    monkeypatch.setattr(followers, "LARGEST_FRAME_BYTES", 2**20)
    leader, follower = pair
    leader.server._answer_one = endless = EndlessBody(bytes(2**16), status=status)
    assert await follower.poll() == failure
    assert endless.sent < 1000, "of 655 MB, only what the sockets buffer is sent"
    assert follower.replicas == {"chat": 7, "code": 7}


async def test_response_that_announces_too_many_bytes_is_not_read(pair, monkeypatch):
    monkeypatch.setattr(followers, "LARGEST_FRAME_BYTES", 1000)
    _, follower = pair
    assert await follower.poll() == "too_large"


async def test_compressed_response_is_not_inflated(pair):
    leader, follower = pair
    bomb = gzip.compress(bytes(2**24))
    whole = encode(Frame("e", 1, 1000.0, 1000.0)) + bytes(2**20)
    for body in (bomb, gzip.compress(whole)):

        async def answer(_request, body=body):
            return web.Response(body=body, headers={"Content-Encoding": "gzip"})

        leader.server._answer_one = answer
        assert await follower.poll() == "bad_frame"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_body_of_a_request_is_not_read(pair, method):
    leader, follower = pair
    sent = 0

    async def endless():
        nonlocal sent
        while sent < MANY:
            yield bytes(2**16)
            sent += 1

    async with follower.follower.session() as session:
        url = f"https://{leader.address}{PATH}"
        with suppress(aiohttp.ClientError):
            async with session.request(method, url, data=endless(), server_hostname=SERVER) as response:
                assert response.status in {405, 413}
    assert sent < 1000, "of 655 MB, only what the sockets buffer is sent"


async def test_concurrent_requests_are_bounded(pair, monkeypatch):
    monkeypatch.setattr(servers, "MOST_REQUESTS", 1)
    leader, follower = pair
    begun, release = asyncio.Event(), asyncio.Event()
    answer_one = leader.server._answer_one

    async def slow(request):
        begun.set()
        await release.wait()
        return await answer_one(request)

    leader.server._answer_one = slow
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(follower.poll())
        await begun.wait()
        assert await follower.poll() == "http_503"
        release.set()
    assert first.result() is None
    leader.server._answer_one = answer_one
    assert await follower.poll() is None
