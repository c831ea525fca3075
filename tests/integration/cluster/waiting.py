"""Waiting for what the daemon says, as long as a busy machine may need and no longer than it takes."""

import asyncio
from contextlib import asynccontextmanager

SOON_S = 30.0  # never waited for on a quick machine


async def until(ask, is_so):
    """Ask again and again until `is_so(answer)`; returns that answer."""
    answer = None
    try:
        async with asyncio.timeout(SOON_S):
            while True:
                answer = await ask()
                if is_so(answer):
                    return answer
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"still {answer}") from None


@asynccontextmanager
async def meanwhile(ask):
    """Ask again and again while the block runs."""

    async def asking():
        while True:
            await ask()
            await asyncio.sleep(0.02)

    task = asyncio.create_task(asking())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def asked_again(page, times=3):
    """Wait until a page, or a pod's, has been asked so many times more: scrapes have passed, and ticks with them."""
    enough = page.asked + times

    async def asked():
        return page.asked

    await until(asked, lambda number: number >= enough)
