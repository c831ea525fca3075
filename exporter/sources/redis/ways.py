"""Which server to ask: the one there is, the one that sentinels call the master, or the owner of each key's slot.

A master is asked for at every turn: whoever is called so then is asked, and one that has been deposed is believed no
more. Owners of slots are learnt once and again when one says MOVED or does not answer; a node that does not answer
costs the keys that are its own, and nobody else's.

Worked example: three sentinels say that `mymaster` is 10.0.0.8:6379. It is sent `ROLE` before the commands, in the same
packet; if it answers that it is a replica, nothing else that it says is believed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from redis.crc import key_slot

from exporter.model import FailureKind

from ..http import ScrapeRejected
from .answers import ErrorReply, Owner, Reply, failure, owners_of, role_failure
from .query import Address, Command, Servers, Way, host_port
from .server import RedisServer

# Of the time for one page: asking the sentinels or a node, so that another or the same can be asked after it.
SHARE = 0.25
UNREACHABLE, MOVED = "UNREACHABLE", "MOVED"


class KeyReader(Protocol):
    """Whoever can be asked for keys."""

    async def ask(self, commands: Sequence[Command], timeout_s: float) -> list[Reply]:
        """The replies in their order. Raises Refused where nothing can be believed, TimeoutError."""

    async def close(self) -> None: ...


def way_to(servers: Servers) -> KeyReader:
    match servers.way:
        case Way.SERVER:
            return _One(servers)
        case Way.SENTINEL:
            return _Sentinels(servers)
        case Way.CLUSTER:
            return _Cluster(servers)


def _server(address: Address, servers: Servers) -> RedisServer:
    return RedisServer(address, servers.access, tls=servers.tls, db=servers.db)


async def _believed(server: RedisServer, commands: Sequence[Command], *, master_wanted: bool) -> list[Reply]:
    role, *replies = await server.ask([("ROLE",), *commands])
    failures = (failure(reply) for reply in replies if isinstance(reply, ErrorReply))
    wrong = role_failure(role, master_wanted=master_wanted) or next((each for each in failures if each), None)
    if wrong is not None:
        raise ScrapeRejected(wrong.kind, f"{host_port(server.address)}: {wrong.detail}")
    return replies


class _One:
    def __init__(self, servers: Servers) -> None:
        self._server = _server(servers.addresses[0], servers)

    async def ask(self, commands: Sequence[Command], timeout_s: float) -> list[Reply]:  # noqa: ARG002 - the page's own
        return await _believed(self._server, commands, master_wanted=False)

    async def close(self) -> None:
        await self._server.close()


class _Sentinels:
    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._sentinels = [RedisServer(each, servers.sentinel_access, tls=servers.tls) for each in servers.addresses]
        self._master: RedisServer | None = None

    async def ask(self, commands: Sequence[Command], timeout_s: float) -> list[Reply]:
        address = await self._where(timeout_s * SHARE)
        if self._master is None or self._master.address != address:
            if self._master is not None:
                await self._master.close()
            self._master = _server(address, self._servers)
        return await _believed(self._master, commands, master_wanted=True)

    async def _where(self, timeout_s: float) -> Address:
        """What most of the sentinels that answer say; of as many, the first."""
        command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._servers.master)
        replies = await asyncio.gather(*(_one_of(each, [command], timeout_s) for each in self._sentinels))
        votes: Counter[Address] = Counter()
        for (reply,) in replies:
            match reply:
                case [bytes(host), bytes(port)] if port.isdigit():
                    votes[host.decode(errors="replace"), int(port)] += 1
        if votes:
            return votes.most_common(1)[0][0]
        if any(reply is None for (reply,) in replies):
            raise ScrapeRejected(FailureKind.UNREADABLE, f"the sentinels know no master called {self._servers.master}")
        raise ScrapeRejected(
            FailureKind.REFUSED, f"no sentinel answers: {'; '.join(str(reply) for (reply,) in replies)}"
        )

    async def close(self) -> None:
        for server in (*self._sentinels, *([self._master] if self._master else [])):
            await server.close()


class _Cluster:
    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._nodes = {address: _server(address, servers) for address in servers.addresses}
        self._owners: tuple[Owner, ...] = ()

    async def ask(self, commands: Sequence[Command], timeout_s: float) -> list[Reply]:
        share = timeout_s * SHARE
        if not self._owners:
            await self._learn(share)
        replies = await self._ask_owners(commands, share)
        again = [place for place, reply in enumerate(replies) if _is_astray(reply)]
        if again:
            await self._learn(share)
            found = await self._ask_owners([commands[place] for place in again], share)
            for place, reply in zip(again, found, strict=True):
                replies[place] = reply
        return replies

    async def _ask_owners(self, commands: Sequence[Command], timeout_s: float) -> list[Reply]:
        places: dict[Address | None, list[int]] = {}
        for place, command in enumerate(commands):
            places.setdefault(self._owner(key_slot(_key(command).encode())), []).append(place)
        replies: list[Reply] = [ErrorReply("CLUSTERDOWN", "nobody owns the slot of this key")] * len(commands)
        owned = {owner: of for owner, of in places.items() if owner is not None}
        asked = (_one_of(self._nodes[owner], [commands[at] for at in of], timeout_s) for owner, of in owned.items())
        for of, answers in zip(owned.values(), await asyncio.gather(*asked), strict=True):
            for place, reply in zip(of, answers, strict=True):
                replies[place] = reply
        return replies

    def _owner(self, slot: int) -> Address | None:
        return next((one.address for one in self._owners if one.first <= slot <= one.last), None)

    async def _learn(self, timeout_s: float) -> None:
        """Who owns which slots, by the first of the nodes that says so."""
        nodes = list(self._nodes.values())
        replies = await asyncio.gather(*(_one_of(node, [("CLUSTER", "SLOTS")], timeout_s) for node in nodes))
        for node, (reply,) in zip(nodes, replies, strict=True):
            if owners := owners_of(reply, node.address[0]):
                self._owners = owners
                break
        else:
            says = "; ".join(str(reply) for (reply,) in replies)
            raise ScrapeRejected(FailureKind.REFUSED, f"no node says who owns which slots: {says or 'nobody owns one'}")
        wanted = {one.address for one in self._owners} | set(self._servers.addresses)
        for gone in self._nodes.keys() - wanted:
            await self._nodes.pop(gone).close()
        for new in wanted - self._nodes.keys():
            self._nodes[new] = _server(new, self._servers)

    async def close(self) -> None:
        for server in self._nodes.values():
            await server.close()


async def _one_of(server: RedisServer, commands: Sequence[Command], timeout_s: float) -> list[Reply]:
    """What one of several servers says; that it cannot be asked is no more than its own replies' fault."""
    try:
        async with asyncio.timeout(timeout_s):
            return await server.ask(commands)
    except TimeoutError:
        detail = f"{host_port(server.address)}: no answer within {timeout_s:g} s"
    except ScrapeRejected as refusal:
        detail = refusal.failure.detail
    return [ErrorReply(UNREACHABLE, detail)] * len(commands)


def _is_astray(reply: Reply) -> bool:
    return isinstance(reply, ErrorReply) and reply.code in {MOVED, UNREACHABLE, "CLUSTERDOWN"}


def _key(command: Command) -> str:
    return command[2] if command[0] == "XINFO" else command[1]
