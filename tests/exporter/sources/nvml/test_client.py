"""NVML from an event loop: a driver that hangs holds up one thread, and nothing else."""

import asyncio
import threading

import pytest

from exporter.model import Failure, FailureKind, Samples
from exporter.sources.nvml import Nvml

PATIENCE_S = 20.0  # never waited for: only says which await hung


@pytest.fixture
async def hung(fake, proc):
    """A library whose driver hangs until `gate` is set, and its source, which waits for no time at all."""
    library = fake.FakeNvml([fake.FakeGpu()], gate=threading.Event())
    yield library, Nvml(library, {}.get, timeout_s=0.01, proc=proc.path)
    library.gate.set()
    for thread in library.threads:
        thread.join(PATIENCE_S)


async def hang(library, nvml):
    """The first question, whose thread is now with the driver."""
    answer = await nvml.samples(0.0)
    assert library.entered.wait(PATIENCE_S)
    return answer


async def after_the_thread(library):
    """Until the loop has heard of the thread's end."""
    for thread in library.threads:
        thread.join(PATIENCE_S)
    await asyncio.sleep(0)


async def test_reading_is_a_table_made_in_another_thread(fake, proc):
    library = fake.FakeNvml([fake.FakeGpu()])

    samples = await Nvml(library, {}.get, timeout_s=PATIENCE_S, proc=proc.path).samples(1000.0)

    assert samples.at.tolist() == [1000.0]
    assert threading.current_thread() not in library.threads


async def test_driver_that_hangs_is_a_time_out(hung):
    assert await hang(*hung) == Failure(FailureKind.TIMEOUT, "NVML: no answer of the driver within 0.01 s")


async def test_while_it_hangs_no_second_thread_is_begun(hung):
    library, nvml = hung
    await hang(library, nvml)

    answers = [await nvml.samples(float(at)) for at in range(50)]

    assert {answer.kind for answer in answers} == {FailureKind.TIMEOUT}
    assert "hangs" in answers[0].detail
    assert len(library.threads) == 1


async def test_loop_goes_on_while_it_hangs(hung):
    _, nvml = hung
    asked = asyncio.create_task(nvml.samples(0.0))
    turns = 0

    while not asked.done():
        await asyncio.sleep(0)
        turns += 1

    assert turns > 1


async def test_late_answer_is_thrown_away_and_the_next_is_heard(hung):
    library, nvml = hung
    mistakes = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: mistakes.append(context))
    await hang(library, nvml)
    library.gate.set()
    await after_the_thread(library)
    nvml._timeout_s = PATIENCE_S

    samples = await nvml.samples(5.0)

    assert (samples.at.tolist(), mistakes) == ([5.0], [])
    assert library.inits == 1


async def test_whoever_stops_waiting_leaves_no_second_thread(hung):
    library, nvml = hung
    asked = asyncio.create_task(nvml.samples(0.0))
    await asyncio.sleep(0)
    assert library.entered.wait(PATIENCE_S)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked

    assert (await nvml.samples(1.0)).kind is FailureKind.TIMEOUT
    assert len(library.threads) == 1


async def test_hung_thread_does_not_keep_the_process_alive(hung):
    library, nvml = hung
    await hang(library, nvml)

    assert [thread.daemon for thread in library.threads] == [True]


async def test_mistake_of_ours_is_raised_to_who_asked_and_the_next_reading_goes_on(fake, proc):
    library = fake.FakeNvml([None])  # no mistake is known; a GPU that is none stands for one
    nvml = Nvml(library, {}.get, timeout_s=PATIENCE_S, proc=proc.path)

    with pytest.raises(AttributeError):
        await nvml.samples(0.0)
    library.gpus = [fake.FakeGpu()]

    assert isinstance(await nvml.samples(5.0), Samples)


async def test_closing_lets_the_driver_go(fake, proc):
    library = fake.FakeNvml([fake.FakeGpu()])
    nvml = Nvml(library, {}.get, timeout_s=PATIENCE_S, proc=proc.path)
    await nvml.samples(0.0)

    await nvml.close()

    assert not library.is_open


async def test_closing_does_not_wait_for_a_driver_that_hangs(hung):
    library, nvml = hung
    await hang(library, nvml)

    await nvml.close()

    assert len(library.threads) == 1
