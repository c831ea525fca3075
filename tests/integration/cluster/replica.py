"""One replica of several, as `tidegate run` would start it, but on a clock that is off and with a Lease that is short.

    python tests/integration/cluster/replica.py CONFIG OFFSET_S

Only tests want either, so neither is an option of the command.
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

# As far apart as the real ones (15, 10 and 2 s), and a test's worth of waiting.
TERMS = Terms(lease_s=3.0, renew_s=2.0, retry_s=0.3)


class OffsetClock(WallClock):
    def __init__(self, offset_s):
        super().__init__(system=lambda: time.time() + offset_s)


async def serve(config, offset_s):
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await Daemon(config, OffsetClock(offset_s), terms=TERMS).run(stop)


if __name__ == "__main__":
    told = load(sys.argv[1])
    configure(told.log.format, told.log.level)
    asyncio.run(serve(told, float(sys.argv[2])))
