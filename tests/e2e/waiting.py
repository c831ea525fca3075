"""Waiting for a real control plane: polls with a deadline, and what was seen instead when it has passed."""

import time
from contextlib import contextmanager
from threading import Event, Thread

# The HPA looks every 15 s by default and KEDA as often as its pollingInterval says: some rounds of both.
SOON_S = 90.0
LOOK_S = 0.2


def until(ask, is_so, *, within=SOON_S, seen=None):
    """Ask until `is_so(answer)`; returns that answer. seen: says more about what there is instead."""
    deadline = time.monotonic() + within
    while not is_so(answer := ask()):
        if time.monotonic() > deadline:
            raise AssertionError(f"after {within:g} s still {answer}" + (f"; {seen()}" if seen else ""))
        time.sleep(LOOK_S)
    return answer


def stays(ask, wanted, seconds, seen=None):
    """Ask for so long; each answer must be this one."""
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < seconds:
        answer = ask()
        assert answer == wanted, f"{answer} after {passed:.1f} s, not {wanted}" + (f"; {seen()}" if seen else "")
        time.sleep(LOOK_S)


@contextmanager
def history(ask):
    """All answers while the block runs, each change once."""
    answers, over = [ask()], Event()

    def watch():
        last = False
        while not last:
            last = over.wait(LOOK_S)  # what is so at the end belongs to it
            if (answer := ask()) != answers[-1]:
                answers.append(answer)

    thread = Thread(target=watch, name="history")
    thread.start()
    try:
        yield answers
    finally:
        over.set()
        thread.join()
