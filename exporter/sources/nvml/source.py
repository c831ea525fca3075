"""NVML from an event loop: a thread that may hang, and a loop that may not.

A driver in trouble holds a caller for seconds, or for ever, and a thread cannot be stopped. So each reading has a
thread of its own, there is never a second one beside it, and while it hangs every further reading is a `Failure` at
once. The thread is a daemon: a process that ends does not wait for the driver.

Worked example: `await nvml.samples(now)` with a driver that hangs is `Failure(TIMEOUT, …)` after `timeout_s`, and so is
the next one, at once; when the driver comes back, its late answer is thrown away, and the one after is a table again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from exporter.model import Failure, FailureKind, Samples

from .holders import PodOf
from .library import Library
from .node import NvmlNode

PROC = Path("/proc")

Made = TypeVar("Made")


class Nvml:
    """The node's GPUs.

    library:     `installed()`, or whatever else speaks so.
    pod_of: a pod of this node by the UID that the API gave it, None for a stranger's; asked in a thread.
                 Where nobody knows, an empty one: then no GPU is anybody's.
    timeout_s:   seconds of the wall that one reading may take.
    """

    def __init__(self, library: Library, pod_of: PodOf, timeout_s: float, proc: Path = PROC) -> None:
        self._node = NvmlNode(library, pod_of, proc)
        self._timeout_s = timeout_s
        self._asking = False

    async def samples(self, now: float) -> Samples | Failure:
        """A row per GPU and MIG instance, or why there are none. `now`: POSIX seconds, the time of every row."""
        if self._asking:
            return Failure(FailureKind.TIMEOUT, "NVML: the driver has not answered the last question yet: it hangs")
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._in_a_thread(lambda: self._node.read(now))
        except TimeoutError:
            return Failure(FailureKind.TIMEOUT, f"NVML: no answer of the driver within {self._timeout_s:g} s")

    async def close(self) -> None:
        """Let the driver go: its kernel module cannot be unloaded before. One that hangs is left as it is."""
        if self._asking:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                await self._in_a_thread(self._node.close)

    def _in_a_thread(self, call: Callable[[], Made]) -> asyncio.Future[Made]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Made] = loop.create_future()

        def land(made: Made | None, error: Exception | None) -> None:
            self._asking = False
            if answer.done():  # nobody waits any more
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(made)  # type: ignore[arg-type]  # None only where Made is

        def run() -> None:
            made, failed = None, None
            try:
                made = call()
            except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
                failed = error
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(land, made, failed)

        threading.Thread(target=run, name="nvml", daemon=True).start()
        self._asking = True  # `land` is called by this loop, so not before
        return answer
