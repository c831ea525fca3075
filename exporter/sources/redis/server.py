"""One connection to one Redis server: commands out in one packet, replies back in their order.

Passwords and certificates are read at each new connection, because they rotate; a connection that broke, or whose
question was given up, is never used again, since the next reply on it would be somebody else's. It speaks RESP2, which
every Redis and every proxy knows. Only this module imports the client library.

Worked example: `await server.ask([("LLEN", "jobs"), ("LLEN", "a-hash")])` is
`[3, Refusal("WRONGTYPE", "Operation against a key holding the wrong kind of value")]`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

from redis.asyncio.connection import Connection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AskError, MovedError, RedisError, ResponseError

from exporter.model import Credentials, FailureKind

from ..http import ScrapeRejected, os_reason, secret, tls_context, tls_reason
from .answers import ErrorReply, Reply, failure
from .query import Address, Command, host_port


class _Connection(Connection):
    """With a TLS context of ours, and the name that the certificate must carry."""

    def __init__(self, *, tls: ssl.SSLContext | None, server_name: str | None, **settings: Any) -> None:
        self._tls, self._server_name = tls, server_name
        super().__init__(**settings)

    def _connection_arguments(self) -> Mapping[str, Any]:
        arguments = {"host": self.host, "port": self.port}
        if self._tls is None:
            return arguments
        return {**arguments, "ssl": self._tls, "server_hostname": self._server_name or self.host}


class RedisServer:
    """One server; asks are answered one after the other. Close it when done."""

    def __init__(self, address: Address, access: Credentials, *, tls: bool, db: int = 0) -> None:
        self.address = address
        self._access, self._tls, self._db = access, tls, db
        self._turn = asyncio.Lock()
        self._connection: _Connection | None = None

    async def ask(self, commands: Sequence[Command]) -> list[Reply]:
        """The replies, a Refusal for each command that failed. Raises Refused if the server cannot be asked."""
        async with self._turn:
            try:
                connection = await self._connected()
                packed = connection.pack_commands(commands)
                await connection.send_packed_command(packed, check_health=False)
                return [await _reply(connection) for _ in commands]
            except RedisError as error:
                await self._drop()
                raise self._refusal(error) from error
            except (ValueError, RecursionError) as error:  # a number with letters in it, lists in lists without end
                await self._drop()
                words = f"{host_port(self.address)}: the answer is nothing that Redis says"
                raise ScrapeRejected(FailureKind.UNREADABLE, words) from error
            except BaseException:
                await self._drop()
                raise

    async def _connected(self) -> _Connection:
        if self._connection is not None and not await _is_whole(self._connection):
            await self._drop()
        if self._connection is None:
            self._connection = self._new()
            await self._connection.connect()  # type: ignore[no-untyped-call]
        return self._connection

    def _new(self) -> _Connection:
        access, (host, port) = self._access, self.address
        return _Connection(
            host=host,
            port=port,
            db=self._db,
            username=access.username,
            password=secret(access.password_file) if access.password_file else None,
            tls=tls_context(access) if self._tls else None,
            server_name=access.server_name,
            # Who asks says how long it may take; the next turn is the retry.
            socket_timeout=None,
            socket_connect_timeout=None,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            driver_info=None,  # it would say CLIENT SETINFO, which a user may not be allowed to
        )

    def _refusal(self, error: RedisError) -> ScrapeRejected:
        cause, place = error.__cause__ or error.__context__, host_port(self.address)
        if isinstance(cause, ssl.SSLError):
            return ScrapeRejected(FailureKind.TLS, f"{place}: {tls_reason(cause)}")
        if isinstance(cause, OSError):
            return ScrapeRejected(FailureKind.REFUSED, f"{place}: {os_reason(cause)}")
        refusal = _said(error)
        if refusal is None:
            return ScrapeRejected(FailureKind.REFUSED, f"{place}: {error}")
        whole = failure(refusal)
        kind = FailureKind.REFUSED if whole is None else whole.kind
        return ScrapeRejected(kind, f"{place}: the server says: {refusal}")

    async def _drop(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.disconnect(nowait=True)

    async def close(self) -> None:
        await self._drop()


async def _is_whole(connection: _Connection) -> bool:
    """Nobody has closed it, and nothing lies in it that was not asked for."""
    try:
        return not await connection.can_read()
    except RedisError:
        return False


async def _reply(connection: _Connection) -> Reply:
    try:
        return await connection.read_response(disable_decoding=True, disconnect_on_error=False)
    except RedisError as error:
        refusal = _said(error)
        if refusal is None:
            raise
        return refusal


def _said(error: RedisError) -> ErrorReply | None:
    """What the server said; None if it was not the server who said it. The library cuts the codes it knows off."""
    match error:
        case MovedError():
            return ErrorReply("MOVED", str(error))
        case AskError():
            return ErrorReply("ASK", str(error))
        case RedisError(status_code=str(code)):
            return ErrorReply(code, str(error))
        case ResponseError():
            code, _, words = str(error).partition(" ")
            return ErrorReply(code, words)
    return None
