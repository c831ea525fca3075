"""A driver that hangs blocks one thread and never the event loop."""

import asyncio
import threading

import pytest

from exporter.model import Failure, FailureKind, Samples
from exporter.sources.nvml import Nvml

PATIENCE_S = 60.0  # never waited for: only says which await hung


@pytest.fixture
async def hung(fake, proc):
    """A library whose driver hangs until `gate` is set, and its source with a tiny time limit."""
    library = fake.FakeNvml([fake.FakeGpu()], gate=threading.Event())
    yield library, Nvml(library, {}.get, timeout_s=0.01, proc=proc.path)
    library.gate.set()
    for thread in library.threads:
        thread.join(PATIENCE_S)


async def hang(library, nvml):
    """Starts the first reading. Returns its result while its thread hangs in the driver."""
    answer = await nvml.samples(0.0)
    assert library.entered.wait(PATIENCE_S)
    return answer


async def threads_ended(library):
    """Waits until the event loop has processed the end of the threads."""
    for thread in library.threads:
        thread.join(PATIENCE_S)
    await asyncio.sleep(0)


async def test_reading_runs_in_another_thread(fake, proc):
    library = fake.FakeNvml([fake.FakeGpu()])

    samples = await Nvml(library, {}.get, timeout_s=PATIENCE_S, proc=proc.path).samples(1000.0)

    assert samples.at.tolist() == [1000.0]
    assert threading.current_thread() not in library.threads


async def test_hanging_driver_is_a_timeout(hung):
    assert await hang(*hung) == Failure(FailureKind.TIMEOUT, "NVML: no answer of the driver within 0.01 s")


async def test_hanging_driver_gets_no_second_thread(hung):
    library, nvml = hung
    await hang(library, nvml)

    answers = [await nvml.samples(float(at)) for at in range(50)]

    assert {answer.kind for answer in answers} == {FailureKind.TIMEOUT}
    assert "hangs" in answers[0].detail
    assert len(library.threads) == 1


async def test_event_loop_runs_while_the_driver_hangs(hung):
    _, nvml = hung
    reading = asyncio.create_task(nvml.samples(0.0))
    turns = 0

    while not reading.done():
        await asyncio.sleep(0)
        turns += 1

    assert turns > 1


async def test_late_result_is_dropped_and_the_next_reading_succeeds(hung):
    library, nvml = hung
    errors = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    await hang(library, nvml)
    library.gate.set()
    await threads_ended(library)
    nvml._timeout_s = PATIENCE_S

    samples = await nvml.samples(5.0)

    assert (samples.at.tolist(), errors) == ([5.0], [])
    assert library.inits == 1


async def test_cancelled_reading_starts_no_second_thread(hung):
    library, nvml = hung
    reading = asyncio.create_task(nvml.samples(0.0))
    await asyncio.sleep(0)
    assert library.entered.wait(PATIENCE_S)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading

    assert (await nvml.samples(1.0)).kind is FailureKind.TIMEOUT
    assert len(library.threads) == 1


async def test_hung_thread_does_not_keep_the_process_alive(hung):
    library, nvml = hung
    await hang(library, nvml)

    assert [thread.daemon for thread in library.threads] == [True]


async def test_bug_is_raised_to_the_caller_and_the_next_reading_succeeds(fake, proc):
    library = fake.FakeNvml([None])  # None instead of a GPU stands for a bug
    nvml = Nvml(library, {}.get, timeout_s=PATIENCE_S, proc=proc.path)

    with pytest.raises(AttributeError):
        await nvml.samples(0.0)
    library.gpus = [fake.FakeGpu()]

    assert isinstance(await nvml.samples(5.0), Samples)


async def test_close_shuts_the_driver_down(fake, proc):
    library = fake.FakeNvml([fake.FakeGpu()])
    nvml = Nvml(library, {}.get, timeout_s=PATIENCE_S, proc=proc.path)
    await nvml.samples(0.0)

    await nvml.close()

    assert not library.is_open


async def test_close_does_not_wait_for_a_hanging_driver(hung):
    library, nvml = hung
    await hang(library, nvml)

    await nvml.close()

    assert len(library.threads) == 1
