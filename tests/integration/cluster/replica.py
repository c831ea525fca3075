"""One replica of several, as `tidegate run` starts it, but with an offset clock and a short Lease.

    python tests/integration/cluster/replica.py CONFIG OFFSET_S

Only tests need these, so they are no options of the command.
"""

import asyncio
import signal
import sys
import time

from exporter.clock import WallClock
from scaler.config import load
from scaler.daemon import Daemon
from scaler.ha.election import Terms
from scaler.logs import configure

# In the proportion of the real terms (15, 10 and 2 s), but short enough for a test.
TERMS = Terms(lease_s=3.0, renew_s=2.0, retry_s=0.3)


class OffsetClock(WallClock):
    def __init__(self, offset_s):
        super().__init__(system=lambda: time.time() + offset_s)


async def serve(config, offset_s):
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await Daemon(config, OffsetClock(offset_s), terms=TERMS).run(stop)


if __name__ == "__main__":
    config = load(sys.argv[1])
    configure(config.log.format, config.log.level)
    asyncio.run(serve(config, float(sys.argv[2])))
