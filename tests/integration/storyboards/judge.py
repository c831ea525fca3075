"""Scores a scenario: lost requests, wrong sleeps, wrong wakes, and the cost of keeping warm.

Wrong sleeps: an order to zero while a request is in hand that a scrape has shown by then, or while a GPU job runs that
a scrape has shown; and a pod that was killed with work in it. A request that no scrape can have shown yet is a race,
and no wrong sleep: races are counted separately, and such requests must be answered like any other.

Wrong wakes: a decision that becomes active at zero without a waiting request, and its order. `expected` exempts
intended ones (a schedule, `on_blind: wake`).

Cost is in GPU-seconds of one replica: its idle seconds, and for each start with a waiting request, the GPU's seconds of
the start and the price of the waiting. The clairvoyant choice knows the next request of each pause and takes the
cheaper option: stay, or start again. `regret` is the ratio of both sums.

Worked example: starts take 75 s, and a second of waiting costs 12 GPU-seconds: a start costs 75 + 12 x 75 = 975. A
pause of 420 s costs the clairvoyant 420; kept warm for 300 s, with 30 s of cooldown, it costs 330 + 975 = 1305.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

# dcgm-exporter's values are up to 30 s old, and are scraped every 5 s.
GPUS_SHOW_S = 40.0
WAITING_GPU_S = 12.0  # the price of a second of waiting in GPU-seconds: the shipped `prices`, 30 to 2.5


@dataclass(frozen=True)
class Score:
    """idle_s: replica-seconds without work. paid, clairvoyant: GPU-seconds, waiting included, over all pauses."""

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
    """expected: whether this decision may wake without a waiting request."""

    def __init__(self, clock, gate, model, waiting_gpu_s=WAITING_GPU_S):
        self.clock, self.gate, self.model, self.waiting_gpu_s = clock, gate, model, waiting_gpu_s
        self.expected = lambda decision: str(decision.reason) in {"scheduled", "warm"}  # warm: started in advance
        self.wrong_sleeps, self.wrong_wakes, self.races = [], [], 0
        self.sleeps, self.wakes = [], []
        self._replica_s = self._idle_s = 0.0
        self._at = clock.now
        self._rightly_woken = False
        self._was_active = None
        self._idle_in_pause = 0.0
        self._pause_since = None
        self._pauses = []  # (start, end by a request, idle replica-seconds, whether a replica was ready for it)
        model.accounted = self.account

    def answered(self, decision):
        """Called for each changed decision."""
        if decision.replicas is None:
            return
        if decision.active and self._was_active is not True:
            self._rightly_woken = bool(self.model.held) or self.model.works() or self.expected(decision)
            if self.model.wanted == 0 and self._was_active is False and not self._rightly_woken:
                self.wrong_wakes.append((self.clock.now, f"answered active: {decision.reason}"))
        self._was_active = decision.active

    def ordered(self, model, before, after):
        """Called just before an order is carried out."""
        now = self.clock.now
        if before > 0 and after == 0:
            self.sleeps.append(now)
            shown, unseen = self._in_hand()
            self.races += bool(unseen and not shown)
            if shown:
                self.wrong_sleeps.append((now, f"{shown} in hand"))
        if before == 0 and after > 0:
            self.wakes.append(now)
            if not self._rightly_woken and not model.held:
                self.wrong_wakes.append((now, f"ordered {after}"))

    def _in_hand(self):
        """Work that a scrape has shown, and work that no scrape can have shown."""
        now, model = self.clock.now, self.model
        shown = sum(request.came_at < self.gate.last_scrape_at(model) for request in model.held)
        unseen = len(model.held) - shown
        for pod in model.pods:
            last_scrape_at = self.gate.last_scrape_at(model, pod)
            shown_by_pod = sum(request.came_at < last_scrape_at for request in (*pod.running, *pod.waiting))
            shown, unseen = shown + shown_by_pod, unseen + pod.load - shown_by_pod
            if pod.has_job(now):
                shown, unseen = shown + (now - pod.job_since > GPUS_SHOW_S), unseen + 1
        return shown, unseen

    # The cost.

    def account(self):
        """Called before each change: adds the time since the last one."""
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
        """GPU-seconds of all pauses between two requests: as they were, and with the next request foreseen."""
        paid = best = 0.0
        start_s = self.model.start_s
        for begun, ended, idle, ready in self._pauses[1:]:  # the time before the first request is no choice
            start = start_s * (1.0 + self.waiting_gpu_s)  # regardless of the number of waiting requests
            paid += idle + (0.0 if ready else start)
            best += min(ended - begun, start)
        return paid, best
