"""Replication does not wait for name look-ups of other tasks."""

import asyncio
import socket
import threading

import pytest

from exporter.event_loop import LOOKUPS, run

from .conftest import Peer

SOON_S = 60.0


@pytest.fixture
def hanging(monkeypatch):
    """Look-ups of `*.hangs.test` block their thread until the test ends. `hanging.hosts` are blocked now."""
    resolved, over = socket.getaddrinfo, threading.Event()
    over.hosts = []

    def getaddrinfo(host, *rest, **more):
        if str(host).endswith(".hangs.test"):
            over.hosts.append(host)
            over.wait(600.0)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return resolved(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield over
    over.set()


async def started(hanging, count):
    async with asyncio.timeout(SOON_S):
        while True:
            if len(hanging.hosts) >= count:
                return
            await asyncio.sleep(0.01)


def look_up(*hosts):
    loop = asyncio.get_running_loop()
    return [asyncio.create_task(loop.getaddrinfo(host, 80)) for host in hosts]


def test_frame_is_answered_while_every_lookup_thread_hangs(hanging, world, leases, pki):
    async def scene():
        leader, follower = (Peer(name, world, leases, pki.files(name), 0.0, ["chat"]) for name in "ab")
        await leader.start()
        await follower.start()
        leader.decide(chat=3)
        await leader.elector.update()
        await follower.elector.update()
        lookups = look_up(*(f"n{number}.hangs.test" for number in range(2 * LOOKUPS)))
        await started(hanging, LOOKUPS)

        async with asyncio.timeout(SOON_S):
            assert await follower.poll() is None

        assert follower.replicas == {"chat": 3}
        assert len(hanging.hosts) == LOOKUPS
        hanging.set()
        results = await asyncio.gather(*lookups, return_exceptions=True)
        assert {type(result) for result in results} == {socket.gaierror}
        assert len(hanging.hosts) == 2 * LOOKUPS
        for peer in (leader, follower):
            await peer.server.stop()

    run(scene())


def test_hanging_name_holds_one_thread_however_often_it_is_requested(hanging):
    async def scene():
        lookups = look_up(*["n.hangs.test"] * 200)
        await started(hanging, 1)
        (other,) = await asyncio.gather(*look_up("127.0.0.1"))
        for lookup in lookups[:100]:
            lookup.cancel()
        hanging.set()
        results = await asyncio.gather(*lookups, return_exceptions=True)

        assert other[0][4] == ("127.0.0.1", 80)
        assert hanging.hosts == ["n.hangs.test"]
        assert [type(result) for result in results] == [asyncio.CancelledError] * 100 + [socket.gaierror] * 100

    run(scene())


def test_process_ends_without_waiting_for_its_lookups(hanging):
    async def scene():
        look_up("n.hangs.test")
        await started(hanging, 1)

    run(scene())
    assert not hanging.is_set()
