"""Sends commands to Redis servers: a single one, the master of a Sentinel group, or the nodes of a Cluster.

All commands to one server go out in one packet, and the replies come back in their order (RESP2, which every Redis and
every proxy supports). A master is looked up for each page. The slots of a Cluster are read once, and again after a
MOVED or a node that does not answer; such a node costs its own keys only. This module alone imports the client library.

Worked example: three sentinels name 10.0.0.8:6379 as `mymaster`. It gets `ROLE` before the commands, in the same
packet; if it answers that it is a replica, all its replies are rejected. `LLEN` of a list and of a hash are
`[3, ErrorReply("WRONGTYPE", "Operation against a key holding the wrong kind of value")]`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from redis.asyncio.connection import Connection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import AskError, MovedError, RedisError, ResponseError

from exporter.model import Credentials, FailureKind

from ..http import ScrapeRejected, os_reason, secret, tls_context, tls_reason
from .decode import ErrorReply, Reply, SlotRange, role_failure, server_failure, slot_ranges
from .query import Address, Command, Servers, Way, host_port

# Share of the time for one page that one request to a sentinel or node may take, so that another can follow.
TIME_SHARE = 0.25
UNREACHABLE = "UNREACHABLE"
_RETRIED = {"MOVED", "CLUSTERDOWN", UNREACHABLE}


class KeyReader(Protocol):
    async def read(self, commands: Sequence[Command], timeout_s: float) -> list[Reply]:
        """The replies in their order. Raises ScrapeRejected if there are no valid ones, and TimeoutError."""

    async def close(self) -> None: ...


def connect(servers: Servers) -> KeyReader:
    match servers.way:
        case Way.SERVER:
            return _SingleServer(servers)
        case Way.SENTINEL:
            return _Sentinels(servers)
        case Way.CLUSTER:
            return _Cluster(servers)


class RedisServer:
    """A connection to one server; requests are answered one after the other. Close it when done.

    Passwords and certificates are read at each new connection, because they rotate. A broken connection, or one with a
    cancelled request, is closed: the next reply on it would belong to an earlier request.
    """

    def __init__(self, address: Address, access: Credentials, *, tls: bool, db: int = 0) -> None:
        self.address = address
        self._access, self._tls, self._db = access, tls, db
        self._lock = asyncio.Lock()
        self._connection: _Connection | None = None

    async def send(self, commands: Sequence[Command]) -> list[Reply]:
        """The replies, an ErrorReply for each command that failed. Raises ScrapeRejected if the server is unusable."""
        async with self._lock:
            try:
                connection = await self._connected()
                packed = connection.pack_commands(commands)
                await connection.send_packed_command(packed, check_health=False)
                return [await _reply(connection) for _ in commands]
            except RedisError as error:
                await self.close()
                raise self._rejection(error) from error
            except (ValueError, RecursionError) as error:  # a malformed number, lists nested without end
                await self.close()
                detail = f"{host_port(self.address)}: the response is not of Redis' protocol"
                raise ScrapeRejected(FailureKind.UNREADABLE, detail) from error
            except BaseException:
                await self.close()
                raise

    async def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.disconnect(nowait=True)

    async def _connected(self) -> _Connection:
        if self._connection is not None and not await _is_usable(self._connection):
            await self.close()
        if self._connection is None:
            self._connection = self._new_connection()
            await self._connection.connect()  # type: ignore[no-untyped-call]
        return self._connection

    def _new_connection(self) -> _Connection:
        access, (host, port) = self._access, self.address
        return _Connection(
            host=host,
            port=port,
            db=self._db,
            username=access.username,
            password=secret(access.password_file) if access.password_file else None,
            tls=tls_context(access) if self._tls else None,
            server_name=access.server_name,
            # The caller limits the time; the next scrape is the retry.
            socket_timeout=None,
            socket_connect_timeout=None,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            driver_info=None,  # it would send CLIENT SETINFO, which a user may not be allowed to
        )

    def _rejection(self, error: RedisError) -> ScrapeRejected:
        cause, server = error.__cause__ or error.__context__, host_port(self.address)
        if isinstance(cause, ssl.SSLError):
            return ScrapeRejected(FailureKind.TLS, f"{server}: {tls_reason(cause)}")
        if isinstance(cause, OSError):
            return ScrapeRejected(FailureKind.REFUSED, f"{server}: {os_reason(cause)}")
        reply = _error_reply(error)
        if reply is None:
            return ScrapeRejected(FailureKind.REFUSED, f"{server}: {error}")
        failure = server_failure(reply)
        kind = FailureKind.REFUSED if failure is None else failure.kind
        return ScrapeRejected(kind, f"{server}: the server says: {reply}")


class _Connection(Connection):
    """With a TLS context of Tidegate's, and the name that the certificate must have."""

    def __init__(self, *, tls: ssl.SSLContext | None, server_name: str | None, **settings: Any) -> None:
        self._tls, self._server_name = tls, server_name
        super().__init__(**settings)

    def _connection_arguments(self) -> Mapping[str, Any]:
        arguments = {"host": self.host, "port": self.port}
        if self._tls is None:
            return arguments
        return {**arguments, "ssl": self._tls, "server_hostname": self._server_name or self.host}


class _SingleServer:
    def __init__(self, servers: Servers) -> None:
        self._server = _server(servers.addresses[0], servers)

    async def read(self, commands: Sequence[Command], timeout_s: float) -> list[Reply]:  # noqa: ARG002 - the page's limit
        return await _send_with_role(self._server, commands, master_wanted=False)

    async def close(self) -> None:
        await self._server.close()


class _Sentinels:
    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._sentinels = [RedisServer(each, servers.sentinel_access, tls=servers.tls) for each in servers.addresses]
        self._master: RedisServer | None = None

    async def read(self, commands: Sequence[Command], timeout_s: float) -> list[Reply]:
        address = await self._find_master(timeout_s * TIME_SHARE)
        if self._master is None or self._master.address != address:
            if self._master is not None:
                await self._master.close()
            self._master = _server(address, self._servers)
        return await _send_with_role(self._master, commands, master_wanted=True)

    async def _find_master(self, timeout_s: float) -> Address:
        """The answer of most sentinels; of equally many, the first."""
        command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._servers.master)
        replies = await asyncio.gather(*(_try_send(each, [command], timeout_s) for each in self._sentinels))
        votes: Counter[Address] = Counter()
        for (reply,) in replies:
            match reply:
                case [bytes(host), bytes(port)] if port.isdigit():
                    votes[host.decode(errors="replace"), int(port)] += 1
        if votes:
            return votes.most_common(1)[0][0]
        if any(reply is None for (reply,) in replies):
            raise ScrapeRejected(FailureKind.UNREADABLE, f"the sentinels know no master called {self._servers.master}")
        reasons = "; ".join(str(reply) for (reply,) in replies)
        raise ScrapeRejected(FailureKind.REFUSED, f"no sentinel answers: {reasons}")

    async def close(self) -> None:
        for server in (*self._sentinels, *([self._master] if self._master else [])):
            await server.close()


class _Cluster:
    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._nodes = {address: _server(address, servers) for address in servers.addresses}
        self._slots: tuple[SlotRange, ...] = ()

    async def read(self, commands: Sequence[Command], timeout_s: float) -> list[Reply]:
        limit_s = timeout_s * TIME_SHARE
        if not self._slots:
            await self._read_slots(limit_s)
        replies = await self._send(commands, limit_s)
        failed = [index for index, reply in enumerate(replies) if _is_retried(reply)]
        if failed:
            await self._read_slots(limit_s)
            retried = await self._send([commands[index] for index in failed], limit_s)
            for index, reply in zip(failed, retried, strict=True):
                replies[index] = reply
        return replies

    async def _send(self, commands: Sequence[Command], timeout_s: float) -> list[Reply]:
        """Sends each command to the node of its key."""
        by_node: dict[Address | None, list[int]] = {}
        for index, command in enumerate(commands):
            by_node.setdefault(self._node_of(command), []).append(index)
        by_node.pop(None, None)
        replies: list[Reply] = [ErrorReply("CLUSTERDOWN", "no node serves the slot of this key")] * len(commands)
        requests = (
            _try_send(self._nodes[address], [commands[index] for index in indexes], timeout_s)
            for address, indexes in by_node.items()
            if address is not None
        )
        for indexes, found in zip(by_node.values(), await asyncio.gather(*requests), strict=True):
            for index, reply in zip(indexes, found, strict=True):
                replies[index] = reply
        return replies

    def _node_of(self, command: Command) -> Address | None:
        key = command[2] if command[0] == "XINFO" else command[1]
        slot = key_slot(key.encode())
        return next((each.address for each in self._slots if each.first <= slot <= each.last), None)

    async def _read_slots(self, timeout_s: float) -> None:
        """Read the slots from the first node that knows them, and connect to their nodes."""
        nodes = list(self._nodes.values())
        replies = await asyncio.gather(*(_try_send(node, [("CLUSTER", "SLOTS")], timeout_s) for node in nodes))
        for node, (reply,) in zip(nodes, replies, strict=True):
            if slots := slot_ranges(reply, node.address[0]):
                self._slots = slots
                break
        else:
            reasons = "; ".join(str(reply) for (reply,) in replies)
            raise ScrapeRejected(FailureKind.REFUSED, f"no node knows the cluster's slots: {reasons or 'no slots'}")
        wanted = {each.address for each in self._slots} | set(self._servers.addresses)
        for gone in self._nodes.keys() - wanted:
            await self._nodes.pop(gone).close()
        for new in wanted - self._nodes.keys():
            self._nodes[new] = _server(new, self._servers)

    async def close(self) -> None:
        for server in self._nodes.values():
            await server.close()


def _server(address: Address, servers: Servers) -> RedisServer:
    return RedisServer(address, servers.access, tls=servers.tls, db=servers.db)


async def _send_with_role(server: RedisServer, commands: Sequence[Command], *, master_wanted: bool) -> list[Reply]:
    role, *replies = await server.send([("ROLE",), *commands])
    failures = (server_failure(reply) for reply in replies if isinstance(reply, ErrorReply))
    failure = role_failure(role, master_wanted=master_wanted) or next((each for each in failures if each), None)
    if failure is not None:
        raise ScrapeRejected(failure.kind, f"{host_port(server.address)}: {failure.detail}")
    return replies


async def _try_send(server: RedisServer, commands: Sequence[Command], timeout_s: float) -> list[Reply]:
    """The replies of one of several servers; an ErrorReply for each command if it is unusable."""
    try:
        async with asyncio.timeout(timeout_s):
            return await server.send(commands)
    except TimeoutError:
        detail = f"{host_port(server.address)}: no answer within {timeout_s:g} s"
    except ScrapeRejected as rejected:
        detail = rejected.failure.detail
    return [ErrorReply(UNREACHABLE, detail)] * len(commands)


def _is_retried(reply: Reply) -> bool:
    return isinstance(reply, ErrorReply) and reply.code in _RETRIED


async def _is_usable(connection: _Connection) -> bool:
    """Whether it is open, and holds no reply that was not requested."""
    try:
        return not await connection.can_read()
    except RedisError:
        return False


async def _reply(connection: _Connection) -> Reply:
    try:
        return await connection.read_response(disable_decoding=True, disconnect_on_error=False)
    except RedisError as error:
        reply = _error_reply(error)
        if reply is None:
            raise
        return reply


def _error_reply(error: RedisError) -> ErrorReply | None:
    """The server's error; None if the client raised it by itself. The client cuts off the codes that it knows."""
    match error:
        case MovedError():
            return ErrorReply("MOVED", str(error))
        case AskError():
            return ErrorReply("ASK", str(error))
        case RedisError(status_code=str(code)):
            return ErrorReply(code, str(error))
        case ResponseError():
            code, _, message = str(error).partition(" ")
            return ErrorReply(code, message)
    return None
