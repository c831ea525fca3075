"""Limits how many tasks begin work in one turn of the event loop, so that a burst does not hold up everything else.

A turn runs every task that is ready before it looks at any socket. Of 2,500 look-ups that are due at one moment each
takes 0.1 ms, but a probe that arrives meanwhile waits for all of them: 0.3 s.

Worked example: of 100 tasks that call `await pace.turn()` at one moment with `most` 20, 20 go on at once, and 20 more
each time that all others that were ready have had their turn.
"""

from __future__ import annotations

import asyncio
from collections import deque


class TurnPace:
    """Lets at most `most` tasks go on between two looks at the sockets, first come, first served."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Returns at once if fewer than `most` tasks have had a turn; a task that is cancelled gives up its place."""
        if self._left == self._most:  # the first since the last turn
            asyncio.get_running_loop().call_soon(self._renew)
        if self._left > 0:
            self._left -= 1
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    def _renew(self) -> None:
        self._left = self._most
        while self._waiting and self._left > 0:
            waiting = self._waiting.popleft()
            if not waiting.done():  # cancelled
                waiting.set_result(None)
                self._left -= 1
        if self._left < self._most:
            asyncio.get_running_loop().call_soon(self._renew)
