"""Polls a real control plane with a deadline, and describes the state if it passes."""

import time
from contextlib import contextmanager
from threading import Event, Thread

# The HPA syncs every 15 s by default and KEDA at its pollingInterval: several rounds of both.
SOON_S = 90.0
LOOK_S = 0.2


def until(ask, is_so, *, within=SOON_S, describe=None):
    """Poll until `is_so(answer)`; returns that answer. describe: adds the state to the message of a failure."""
    deadline = time.monotonic() + within
    while not is_so(answer := ask()):
        if time.monotonic() > deadline:
            raise AssertionError(f"after {within:g} s still {answer}" + (f"; {describe()}" if describe else ""))
        time.sleep(LOOK_S)
    return answer


def stays(ask, wanted, seconds, describe=None):
    """Poll for that long; every answer must be `wanted`."""
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < seconds:
        answer = ask()
        assert answer == wanted, f"{answer} after {passed:.1f} s, not {wanted}" + (
            f"; {describe()}" if describe else ""
        )
        time.sleep(LOOK_S)


@contextmanager
def history(ask):
    """Each change of the answer while the block runs."""
    answers, over = [ask()], Event()

    def watch():
        last = False
        while not last:
            last = over.wait(LOOK_S)  # includes the state at the end
            if (answer := ask()) != answers[-1]:
                answers.append(answer)

    thread = Thread(target=watch, name="history")
    thread.start()
    try:
        yield answers
    finally:
        over.set()
        thread.join()
