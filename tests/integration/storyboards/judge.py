"""Who counts: what was lost, what was put to sleep or woken wrongly, and what keeping warm cost.

Wrong sleeps: an order to zero while a request is in hand that some page has shown by then, or a GPU job runs that some
page has shown; and a pod that was killed with work in it. A request that nobody can have read of yet is no wrong sleep
but a race: it is counted apart, and has to be answered like any other.

Wrong wakes: an answer that turns active at zero while nobody waits, and its order. Who orders one (a schedule, somebody
who prefers the cost to being blind) is asked by `expected`.

What it cost is in GPU-seconds of one replica: those in which it had nothing to do, and for each start that somebody
waited for, the GPU's seconds of the start and what the waiting is worth. The clairvoyant choice knows the next request
of each pause and takes the cheaper of the two: stay, or start again. `regret` is the ratio of both sums.

Worked example: starts take 75 s, a second of waiting is worth 12 GPU-seconds: a start costs 75 + 12 x 75 = 975. A pause
of 420 s costs the clairvoyant 420; kept warm for 300 s and 30 s of cooldown it costs 330 + 975 = 1305.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

# A dcgm-exporter's page is up to 30 s behind, and is asked every 5 s.
GPUS_SHOW_S = 40.0
WAITING_GPU_S = 12.0  # what a second of waiting is worth in seconds of a GPU: the shipped `prices`, 30 to 2.5


@dataclass(frozen=True)
class Score:
    """idle_s: replica-seconds with nothing to do. paid, clairvoyant: GPU-seconds, waiting included, over all pauses."""

    requests: int
    lost: int
    gave_up: int
    wrong_sleeps: int
    wrong_wakes: int
    sleeps: int
    wakes: int
    races: int
    worst_wait_s: float
    replica_hours: float
    idle_hours: float
    paid: float
    clairvoyant: float

    @property
    def regret(self):
        return self.paid / self.clairvoyant if self.clairvoyant else nan

    @property
    def harm(self):
        """(requests lost, wrong sleeps, wrong wakes)"""
        return self.lost, self.wrong_sleeps, self.wrong_wakes


class Judge:
    """expected: may this decision wake with nobody waiting?"""

    def __init__(self, clock, gate, model, waiting_gpu_s=WAITING_GPU_S):
        self.clock, self.gate, self.model, self.waiting_gpu_s = clock, gate, model, waiting_gpu_s
        self.expected = lambda decision: str(decision.reason) in {"scheduled", "warm"}  # warm: up in advance
        self.wrong_sleeps, self.wrong_wakes, self.races = [], [], 0
        self.sleeps, self.wakes = [], []
        self._replica_s = self._idle_s = 0.0
        self._at = clock.now
        self._rightly_woken = False
        self._was_active = None
        self._idle_in_pause = 0.0
        self._pause_since = None
        self._pauses = []  # (begun, ended by a request, idle replica-seconds, was a replica ready for it)
        model.accounted = self.account

    def answered(self, decision):
        """An answer has changed."""
        if not decision.known:
            return
        if decision.active and self._was_active is not True:
            self._rightly_woken = bool(self.model.held) or self.model.works() or self.expected(decision)
            if self.model.wanted == 0 and self._was_active is False and not self._rightly_woken:
                self.wrong_wakes.append((self.clock.now, f"answered active: {decision.reason}"))
        self._was_active = decision.active

    def ordered(self, model, before, after):
        """An order is about to be carried out."""
        now = self.clock.now
        if before > 0 and after == 0:
            self.sleeps.append(now)
            known, unknown = self._in_hand()
            self.races += bool(unknown and not known)
            if known:
                self.wrong_sleeps.append((now, f"{known} in hand"))
        if before == 0 and after > 0:
            self.wakes.append(now)
            if not self._rightly_woken and not model.held:
                self.wrong_wakes.append((now, f"ordered {after}"))

    def _in_hand(self):
        """Work that some page has shown, and work that none can have."""
        now, model = self.clock.now, self.model
        known = sum(request.came_at < self.gate.seen_at(model) for request in model.held)
        unknown = len(model.held) - known
        for pod in model.pods:
            seen_at = self.gate.seen_at(model, pod)
            shown = sum(request.came_at < seen_at for request in (*pod.running, *pod.waiting))
            known, unknown = known + shown, unknown + pod.load - shown
            if pod.has_job(now):
                known, unknown = known + (now - pod.job_since > GPUS_SHOW_S), unknown + 1
        return known, unknown

    # What it cost.

    def account(self):
        """Something is about to change: what was until now is added up."""
        now, model = self.clock.now, self.model
        spent = sum(pod.scheduled for pod in model.pods) * (now - self._at)
        self._replica_s += spent
        if model.works():
            if self._pause_since is not None:
                started = any(pod.ready for pod in model.pods)
                self._pauses.append((self._pause_since, self._at, self._idle_in_pause, started))
                self._pause_since = None
        else:
            if self._pause_since is None:
                self._pause_since, self._idle_in_pause = self._at, 0.0
            self._idle_in_pause += spent
            self._idle_s += spent
        self._at = now

    def score(self):
        self.account()
        model, requests = self.model, self.model.requests
        waits = [request.answered_at - request.at - request.service_s for request in requests if request.answered_at]
        paid, clairvoyant = self._pauses_cost()
        unanswered = sum(not request.over for request in requests)
        return Score(
            requests=len(requests),
            lost=unanswered + sum(request.lost for request in requests),
            gave_up=sum(request.gave_up for request in requests),
            wrong_sleeps=len(self.wrong_sleeps) + model.killed_at_work,
            wrong_wakes=len(self.wrong_wakes),
            sleeps=len(self.sleeps),
            wakes=len(self.wakes),
            races=self.races,
            worst_wait_s=max(waits, default=0.0),
            replica_hours=self._replica_s / 3600.0,
            idle_hours=self._idle_s / 3600.0,
            paid=paid,
            clairvoyant=clairvoyant,
        )

    def _pauses_cost(self):
        """GPU-seconds of all pauses between two requests: as it was, and for who had known when the next comes."""
        paid = best = 0.0
        start_s = self.model.start_s
        for begun, ended, idle, ready in self._pauses[1:]:  # what was before the first request nobody has chosen
            start = start_s * (1.0 + self.waiting_gpu_s)  # however many wait together
            paid += idle + (0.0 if ready else start)
            best += min(ended - begun, start)
        return paid, best
