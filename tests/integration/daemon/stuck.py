"""The daemon as `python -m scaler` starts it, with a gRPC server that a test can break.

    python tests/integration/daemon/stuck.py run -c CONFIG

SIGUSR1: the event loop stops reading what gRPC's threads hand over, so connections stay open and calls wait, as in a
stopped process. SIGUSR2: the server ends, so its port refuses connections. Ticks continue either way.
"""

import asyncio
import signal

from scaler.api import servers
from scaler.cli import main

start_server = servers.keda


def keda(*arguments):
    server, loop = start_server(*arguments), asyncio.get_running_loop()

    def hang():
        for key in list(loop._selector.get_map().values()):
            if "CompletionQueue" in repr(key.data[0]):
                loop.remove_reader(key.fd)

    ended = []
    loop.add_signal_handler(signal.SIGUSR1, hang)
    loop.add_signal_handler(signal.SIGUSR2, lambda: ended.append(loop.create_task(server._server.stop(0))))
    return server


if __name__ == "__main__":
    servers.keda = keda
    main()
