"""Polls until a condition holds, with a timeout for busy machines."""

import asyncio
from contextlib import asynccontextmanager

SOON_S = 90.0  # never reached on a quick machine
POLL_S = 0.05  # a poll takes 2 ms of CPU here and 2 in the daemon that answers it


async def until(ask, is_so):
    """Poll until `is_so(answer)`; returns that answer."""
    answer = None
    try:
        async with asyncio.timeout(SOON_S):
            while True:
                answer = await ask()
                if is_so(answer):
                    return answer
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise AssertionError(f"still {answer}") from None


@asynccontextmanager
async def meanwhile(ask):
    """Poll continually while the block runs."""

    async def polling():
        while True:
            await ask()
            await asyncio.sleep(POLL_S)

    task = asyncio.create_task(polling())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until_scraped(page, times=3):
    """Wait for that many further scrapes of a target, or of a pod's target: by then ticks have followed them."""
    enough = page.scrapes + times

    async def scrapes():
        return page.scrapes

    await until(scrapes, lambda number: number >= enough)
