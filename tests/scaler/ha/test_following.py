"""A follower's answers are the leader's: over real TLS, whatever their clocks say, and only while the leader lives."""

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
from scaler.ha.leader import PATH, connecting

CHAT = WorkloadKey("ai", "chat")
SERVER = "tidegate.tidegate.svc"


async def test_a_follower_answers_with_the_whole_board_and_then_with_what_changes(pair):
    leader, follower = pair
    assert await follower.ask() is None
    assert follower.answers == {"chat": 3, "code": 0}
    leader.decide(chat=4)
    assert await follower.ask() is None
    assert follower.answers == {"chat": 4, "code": 0}
    leader.decide()
    assert await follower.ask() is None
    # What is remembered comes with it: of all, then of the one that changed, then of nobody.
    assert leader.asked_of == [None, {"chat"}]
    assert [memory for memory, _ in follower.learned] == [b"all of it", b"some of it"]


async def test_times_are_of_our_clock_whatever_the_leaders_says(world, pair):
    _, follower = pair
    world.now += 2.0
    assert await follower.ask() is None
    entry = follower.publisher.get(CHAT)
    assert (entry.decided_at, entry.measured_at, follower.publisher.board.at) == (1000.0, 999.0, 1000.0)
    assert [offset for _, offset in follower.learned] == [-300.0]


async def test_the_leaders_word_counts_for_three_ticks_and_then_the_own(world, pair):
    _, follower = pair
    await follower.ask()
    for later, answers in ((3.0, {"chat": 3, "code": 0}), (0.1, {"chat": 7, "code": 7})):
        world.now += later
        follower.follower.settle(world.now)
        assert follower.answers == answers


async def test_a_leader_whose_sweeps_fail_is_not_followed(world, pair):
    _, follower = pair
    world.now += 3.1
    assert await follower.ask() == "stale"
    assert follower.answers == {"chat": 7, "code": 7}


async def test_an_answer_that_was_long_on_its_way_says_nothing_about_the_present(world, pair):
    leader, follower = pair

    def frozen(_workloads):
        world.now += 300.0  # the machine stood still between the question and the answer
        return lambda: b""

    leader.server._memory = frozen
    assert await follower.ask() == "late"
    assert follower.answers == {"chat": 7, "code": 7}
    assert follower.follower.copy == Copy()


async def test_a_new_leader_is_asked_for_everything(peer, pair):
    leader, follower = pair
    await follower.ask()
    await leader.campaign.give_back()
    other = await peer("c")
    other.decide(chat=5, code=5)
    await other.campaign.look()
    await follower.campaign.look()
    assert await follower.ask() is None
    assert (follower.answers, other.asked_of) == ({"chat": 5, "code": 5}, [None])


async def test_changes_since_something_else_are_not_taken_and_everything_is_asked_for(pair, monkeypatch):
    leader, follower = pair
    await follower.ask()
    leader.decide(chat=4)
    with monkeypatch.context() as fault:
        fault.setattr(servers, "encode", lambda frame: encode(replace(frame, since=frame.since - 1)))
        assert await follower.ask() == "gap"
    assert await follower.ask() is None
    assert (follower.answers, leader.asked_of) == ({"chat": 4, "code": 0}, [None, {"chat"}, None])


async def test_who_does_not_lead_says_so_at_once(pair, leases):
    leader, follower = pair
    await leader.campaign.give_back()
    assert await follower.ask() == "not_leading"


async def test_what_a_leader_said_counts_for_its_time_even_if_it_steps_down(world, pair):
    leader, follower = pair
    await follower.ask()
    await leader.campaign.give_back()
    assert await follower.ask() == "not_leading"
    assert follower.answers == {"chat": 3, "code": 0}, "another may have taken its place by then"
    world.now += 3.1
    follower.follower.settle(world.now)
    assert follower.answers == {"chat": 7, "code": 7}


async def test_who_leads_itself_answers_with_its_own_board_at_once(pair):
    leader, follower = pair
    await follower.ask()
    await leader.campaign.give_back()
    await follower.campaign.look()
    assert await follower.ask() is None
    assert follower.campaign.leads(follower.clock.now())
    assert follower.answers == {"chat": 7, "code": 7}


async def test_a_leader_of_the_next_version_is_followed(pair, monkeypatch):
    _, follower = pair

    def newer(frame):
        line, _, memory = encode(frame).partition(b"\n")
        document = json.loads(line) | {"tide": "high"}
        for each in document["changed"]:
            each |= {"tide": "high", "reason": "spring_tide"}
            each["evidence"] |= {"moon": {"full": True}}
        return json.dumps(document).encode() + b"\n" + memory

    monkeypatch.setattr(servers, "encode", newer)
    assert await follower.ask() is None
    assert follower.answers == {"chat": 3, "code": 0}


async def test_a_leader_of_the_version_before_is_followed(pair, monkeypatch):
    _, follower = pair

    def older(frame):
        line, _, memory = encode(frame).partition(b"\n")
        document = json.loads(line)
        for each in document["changed"]:
            del each["evidence"], each["observed"], each["idle_since"]
        return json.dumps(document).encode() + b"\n" + memory

    monkeypatch.setattr(servers, "encode", older)
    assert await follower.ask() is None
    assert follower.answers == {"chat": 3, "code": 0}


async def test_another_format_is_not_followed_and_each_answers_for_itself(pair, monkeypatch):
    _, follower = pair
    monkeypatch.setattr(servers, "encode", lambda _frame: b'{"format": 2}\n')
    assert await follower.ask() == "bad_frame"
    assert follower.answers == {"chat": 7, "code": 7}


@pytest.mark.parametrize("whose", ["kedas", "nobodys", "a strangers"])
async def test_who_has_no_peers_certificate_is_told_nothing(pair, pki, whose):
    leader, _ = pair
    ca = trustme.CA() if whose == "a strangers" else None
    files = pki.files(whose, name="keda-operator" if whose == "kedas" else "tidegate.tidegate.svc", ca=ca)
    pki.files(whose + " ca")
    context = connecting(files._replace(ca=str(pki.folder / (whose + " ca") / "ca.crt")), [].append)
    if whose == "nobodys":
        context = context._present.__class__(context._present.protocol)
        context.load_verify_locations(files.ca)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        ask = session.get(f"https://{leader.address}{PATH}", server_hostname="tidegate.tidegate.svc")
        if whose == "kedas":
            async with ask as response:
                body = await response.text()
            assert (response.status, body) == (403, "your certificate is not for tidegate.tidegate.svc\n")
        else:
            with pytest.raises(aiohttp.ClientError):
                await ask
    assert leader.asked_of == []


async def test_a_server_with_another_name_is_not_believed(peer, pki):
    leader = await peer("a", files=pki.files("a", name="keda-operator"))
    follower = await peer("b")
    leader.decide(chat=3)
    follower.decide(chat=7)
    await leader.campaign.look()
    await follower.campaign.look()
    assert await follower.ask() == "connection"
    assert follower.answers == {"chat": 7}


async def test_certificates_that_rotate_are_taken_by_both_sides(pair, pki):
    _, follower = pair
    assert await follower.ask() is None
    new = trustme.CA()
    pki.files("a", ca=new)
    assert await follower.ask() == "connection"
    pki.files("b", ca=new)
    assert await follower.ask() is None


@pytest.mark.parametrize("query", ["version=x", "at=noon", "wait=long"])
async def test_a_question_that_is_none_is_refused(pair, query):
    leader, follower = pair
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=follower.follower._context)) as session:
        url = f"https://{leader.address}{PATH}?{query}"
        async with session.get(url, server_hostname="tidegate.tidegate.svc") as response:
            assert response.status == 400


async def test_no_api_server_is_said_once_and_so_is_its_return(pair, leases):
    leader, _ = pair
    leases.trouble = ApiFailure(None, "get lease: no answer within 5 s")
    for _ in range(3):
        await leader.campaign.look()
    leases.trouble = None
    for _ in range(3):
        await leader.campaign.look()
    assert leader.told == ["get lease: no answer within 5 s", None]


async def test_who_is_second_at_the_lease_follows_and_says_nothing_of_trouble(peer, leases):
    one, other = await peer("a"), await peer("b")
    seen = await leases.lease("tidegate", "tidegate")
    assert seen is None
    await one.campaign.look()
    # The other had looked before the first one wrote.
    real, leases.lease = leases.lease, lambda namespace, name: none()
    await other.campaign.look()
    leases.lease = real
    await other.campaign.look()
    assert (other.told, other.campaign.leader().holder, leases.writes) == ([], "a", ["a"])


async def test_who_remembers_nothing_does_not_take_what_was_just_given_back(world, pair, leases):
    leader, follower = pair
    follower.patience_s = 15.0
    await leader.campaign.give_back()
    for later in (0.0, 14.0):
        world.now += later
        await follower.campaign.look()
    assert leases.writes == ["a", ""]
    world.now += 1.0
    await follower.campaign.look()
    assert leases.writes == ["a", "", "b"]


async def none():
    return None


async def test_a_lease_is_given_back_also_while_its_renewal_is_under_way(pair, leases, monkeypatch):
    leader, _ = pair
    arrived, answers = asyncio.Event(), asyncio.Event()
    write_lease = leases.write_lease

    async def slow(namespace, name, lease):
        written = await write_lease(namespace, name, lease)
        if lease.holder:
            arrived.set()
            await answers.wait()  # the API server has taken it, and nobody has heard so yet
        return written

    monkeypatch.setattr(leases, "write_lease", slow)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(leader.campaign.look())
        await arrived.wait()
        tasks.create_task(leader.campaign.give_back())
        await asyncio.sleep(0)
        answers.set()
    assert leases.lease_now.holder == ""


async def test_board_that_is_dated_in_the_future_is_not_followed(world, pair):
    leader, follower = pair
    leader.publisher.publish([], at=leader.clock.now() + 1e6)
    assert await follower.ask() == "bad_frame"
    assert follower.answers == {"chat": 7, "code": 7}


async def test_board_becomes_old_also_where_our_clock_is_set_back(world, pair):
    _, follower = pair
    await follower.ask()
    world.now -= 3600.0
    follower.follower.settle(follower.clock.now())
    assert follower.answers == {"chat": 7, "code": 7}


class Forged:
    """A leader that answers whatever a test says: chunks of a body without end, and how many were sent."""

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
async def test_answer_without_end_is_not_read_to_its_end(pair, monkeypatch, status, failure):
    monkeypatch.setattr(followers, "LARGEST_FRAME_BYTES", 2**20)
    leader, follower = pair
    leader.server._answer_one = forged = Forged(bytes(2**16), status=status)
    assert await follower.ask() == failure
    assert forged.sent < 1000, "what the sockets on the way hold, of 655 MB"
    assert follower.answers == {"chat": 7, "code": 7}


async def test_answer_that_says_it_is_too_large_is_not_read(pair, monkeypatch):
    monkeypatch.setattr(followers, "LARGEST_FRAME_BYTES", 1000)
    _, follower = pair
    assert await follower.ask() == "too_large"


async def test_compressed_answer_is_not_inflated(pair):
    leader, follower = pair
    bomb = gzip.compress(bytes(2**24))
    whole = encode(Frame("e", 1, 1000.0, 1000.0)) + bytes(2**20)
    for body in (bomb, gzip.compress(whole)):

        async def answer(_request, body=body):
            return web.Response(body=body, headers={"Content-Encoding": "gzip"})

        leader.server._answer_one = answer
        assert await follower.ask() == "bad_frame"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_body_of_a_question_is_not_read(pair, method):
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
    assert sent < 1000, "what the sockets on the way hold, of 655 MB"


async def test_questions_in_hand_are_bounded(pair, monkeypatch):
    monkeypatch.setattr(servers, "MOST_QUESTIONS", 1)
    leader, follower = pair
    begun, release = asyncio.Event(), asyncio.Event()
    answer_one = leader.server._answer_one

    async def slow(request):
        begun.set()
        await release.wait()
        return await answer_one(request)

    leader.server._answer_one = slow
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(follower.ask())
        await begun.wait()
        assert await follower.ask() == "http_503"
        release.set()
    assert first.result() is None
    leader.server._answer_one = answer_one
    assert await follower.ask() is None
