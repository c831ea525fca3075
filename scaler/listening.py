"""One way to begin to listen, for every HTTP server of ours: a port that is taken is an error that names it.

Worked example: `await listen(runner, "127.0.0.1", 8080, "listen.http")` is 8080, or raises
`AddressInUseError("listen.http: 127.0.0.1:8080 is already in use")`.
"""

from __future__ import annotations

import errno
import ssl

from aiohttp import web


class AddressInUseError(OSError):
    """Somebody else has the port."""


async def listen(
    runner: web.AppRunner, host: str, port: int, key: str, ssl_context: ssl.SSLContext | None = None
) -> int:
    """The port (which matters if 0 was asked for). Raises AddressInUseError, OSError.

    runner: cleaned up if it does not come to that. key: what to change in the configuration, for the error.
    """
    await runner.setup()
    try:
        await web.TCPSite(runner, host or None, port, ssl_context=ssl_context).start()
    except OSError as error:
        await runner.cleanup()
        if error.errno == errno.EADDRINUSE:
            raise AddressInUseError(f"{key}: {host}:{port} is already in use") from error
        raise
    listening: int = runner.addresses[0][1]
    return listening
