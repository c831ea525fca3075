"""A simulated cluster: clients, a gateway that queues their requests, pods that load a model, GPUs.

It models the life of requests and pods with the times of the scenario. It does not depend on Tidegate, KEDA and the
HPA: they read its metrics and counts, and set `wanted`. Times are POSIX seconds of the clock, durations are seconds.

A request waits at the gateway while no pod is routed to, then at a pod for one of its `slots`, then runs there for
`service_s`. A pod is created, scheduled a second later (if there is room), and ready `start_s` after that. A
Terminating pod gets no new requests once the gateway has noticed, and ends with its last request or at the end of its
grace period.

Worked example: a request comes at zero replicas; a replica is ordered at once and loads for 75 s. The request is
answered after 77.5 s with a service time of 1 s: scheduled after 1 s, routed to 0.5 s after it is ready.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import inf

from .clockwork import DAY_S
from .pages import COLLECT_S, POWER_BUSY_W, POWER_IDLE_W, endpoint_picker_page, engine_page, gpu_page

SCHEDULED_S = 1.0
ROUTED_S = 0.5  # delay until the gateway notices that a pod is ready or Terminating
LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # the letters of a pod's random suffix in Kubernetes


@dataclass(eq=False)
class Request:
    """came_at: arrival at its present location, the gateway or a pod. patience_s: its client leaves after this time."""

    number: int
    at: float
    service_s: float
    patience_s: float = inf
    came_at: float = 0.0
    answered_at: float | None = None
    gave_up: bool = False
    lost: bool = False

    @property
    def over(self):
        return self.answered_at is not None or self.gave_up or self.lost


@dataclass(eq=False)
class Pod:
    """job_until: end of a GPU job without a request."""

    name: str
    gpu: str
    slots: int
    created_at: float
    ready_at: float | None = None
    leaving_at: float | None = None
    scheduled_at: float | None = None
    gone: bool = False
    routed: bool = False
    finished: int = 0
    tokens: int = 0
    job_since: float = inf
    job_until: float = -inf
    running: list = field(default_factory=list)
    waiting: deque = field(default_factory=deque)
    worked_s: float = 0.0
    joules: float = 0.0

    @property
    def scheduled(self):
        return self.scheduled_at is not None

    @property
    def ready(self):
        return self.ready_at is not None and self.leaving_at is None

    @property
    def load(self):
        return len(self.running) + len(self.waiting)

    def has_job(self, now):
        return self.job_since <= now < self.job_until


class Model:
    """One workload: its gateway, its Deployment, its pods. `changed`: called for each change of pods or of `wanted`."""

    def __init__(self, clock, name, *, start_s=75.0, slots=16, grace_s=600.0, wanted=0):
        self.clock, self.name = clock, name
        self.start_s, self.slots, self.grace_s = start_s, slots, grace_s
        self.no_room_until = -inf
        self.wanted = 0
        self.held = []
        self.pods = []
        self.requests = []
        self.killed_at_work = 0
        self.changed = self.accounted = lambda: None
        self._numbers = count()
        self.scale(wanted)

    def in_hand(self):
        """Requests that wait or run."""
        return [*self.held, *(request for pod in self.pods for request in (*pod.running, *pod.waiting))]

    def works(self):
        """Whether any work runs or waits."""
        return bool(self.held) or any(pod.load or pod.has_job(self.clock.now) for pod in self.pods)

    # Clients.

    def ask(self, service_s=5.0, patience_s=inf):
        """A request arrives now."""
        self.accounted()
        request = Request(len(self.requests), self.clock.now, service_s, patience_s, came_at=self.clock.now)
        self.requests.append(request)
        self.held.append(request)
        if patience_s < inf:
            self.clock.after(patience_s, partial(self._give_up, request))
        self._dispatch()
        return request

    def ask_at(self, when, service_s=5.0, patience_s=inf):
        self.clock.at(when, partial(self.ask, service_s, patience_s))

    def _give_up(self, request):
        if request.over:
            return
        self.accounted()
        request.gave_up = True
        if request in self.held:
            self.held.remove(request)
        for pod in self.pods:
            if request in pod.waiting:
                pod.waiting.remove(request)
            elif request in pod.running:
                pod.running.remove(request)
                self._work(pod)

    # The gateway.

    def _dispatch(self):
        routed = [pod for pod in self.pods if pod.routed]
        while self.held and routed:
            request, pod = self.held.pop(0), min(routed, key=lambda pod: pod.load)
            request.came_at = self.clock.now
            pod.waiting.append(request)
            self._work(pod)

    def _route(self, pod):
        """The gateway notices a change of a pod."""
        pod.routed = pod.ready and not pod.gone
        self._dispatch()
        self._end_if_done(pod)

    # The engines.

    def _work(self, pod):
        while pod.waiting and len(pod.running) < pod.slots:
            request = pod.waiting.popleft()
            pod.running.append(request)
            self.clock.after(request.service_s, partial(self._finish, pod, request))
        self._end_if_done(pod)

    def _finish(self, pod, request):
        if request not in pod.running:
            return
        self.accounted()
        pod.running.remove(request)
        request.answered_at = self.clock.now
        pod.finished, pod.tokens = pod.finished + 1, pod.tokens + round(50 * request.service_s)
        pod.worked_s += request.service_s
        self._work(pod)

    def probe(self):
        """A load balancer probes every ready pod: the counter of requests rises, without tokens."""
        for pod in self.pods:
            pod.finished += pod.ready

    def run_job(self, seconds):
        """A batch job on the GPUs of all ready pods, without a request."""
        self.accounted()
        for pod in self.pods:
            if pod.ready:
                pod.job_since, pod.job_until = self.clock.now, self.clock.now + seconds
        self.clock.after(seconds, self.accounted)

    # The cluster.

    def scale(self, replicas):
        """KEDA, the HPA or a person sets spec.replicas."""
        self.accounted()
        self.wanted = replicas
        staying = [pod for pod in self.pods if pod.leaving_at is None]
        for _ in range(replicas - len(staying)):
            self._make_pod()
        # Like a ReplicaSet: first unready pods, then the youngest.
        order = sorted(staying, key=lambda pod: (pod.ready, -pod.created_at))
        for pod in order[: max(0, len(staying) - replicas)]:
            self._let_go(pod)
        self.changed()

    def _make_pod(self):
        number = next(self._numbers)
        digits = "".join(LETTERS[number // len(LETTERS) ** position % len(LETTERS)] for position in range(5))
        pod = Pod(f"{self.name}-7d9f8b6c5d-{digits}", f"GPU-{self.name}-{number}", self.slots, self.clock.now)
        self.pods.append(pod)
        self.clock.after(SCHEDULED_S, partial(self._schedule, pod))

    def _schedule(self, pod):
        if pod.gone:
            return
        if self.clock.now < self.no_room_until:
            self.changed()  # "Unschedulable"
            self.clock.at(self.no_room_until, partial(self._schedule, pod))
            return
        self.accounted()
        pod.scheduled_at = self.clock.now
        self.clock.after(self.start_s, partial(self._get_ready, pod))
        self.changed()

    def _get_ready(self, pod):
        if pod.gone:
            return
        pod.ready_at = self.clock.now
        self.clock.after(ROUTED_S, partial(self._route, pod))
        self.changed()

    def _let_go(self, pod):
        pod.leaving_at = self.clock.now
        self.clock.after(ROUTED_S, partial(self._route, pod))
        self.clock.after(self.grace_s, partial(self._kill, pod))
        if pod.ready_at is None:
            self._end(pod)

    def _end_if_done(self, pod):
        if pod.leaving_at is not None and not pod.routed and not pod.load and not pod.has_job(self.clock.now):
            self._end(pod)

    def _kill(self, pod):
        if pod.gone:
            return
        self.killed_at_work += 1
        for request in (*pod.running, *pod.waiting):
            request.lost = True
        self._end(pod)

    def _end(self, pod):
        if not pod.gone:
            self.accounted()
            pod.gone, pod.routed = True, False
            pod.running, pod.waiting = [], deque()
            self.pods.remove(pod)
            self.changed()

    # The metrics.

    def gateway_page(self):
        return endpoint_picker_page(len(self.held), sum(pod.routed for pod in self.pods))

    @staticmethod
    def engine_page(pod):
        return engine_page(pod)


class Node:
    """The GPUs of the models' pods on one node, exposed by one target. Values are up to COLLECT_S old."""

    def __init__(self, clock, models):
        self.clock, self.models = clock, models
        self._joules = {}
        self._text, self._collected_at = "", -inf

    def restart(self):
        """The exporter restarts, and its counters with it."""
        self._joules.clear()
        self._collected_at = -inf

    def page(self):
        now = self.clock.now
        if now - self._collected_at >= COLLECT_S:
            spare = ("GPU-spare", None, 0.0, 7.0)
            self._text = gpu_page([spare, *(self._reading(pod, now) for model in self.models for pod in model.pods)])
            self._collected_at = now
        return self._text

    def _reading(self, pod, now):
        active = 0.95 if pod.has_job(now) or pod.running else 0.0
        watts = POWER_BUSY_W if active else POWER_IDLE_W
        joules = self._joules.get(pod.gpu, 0.0) + watts * COLLECT_S
        self._joules[pod.gpu] = joules
        return pod.gpu, pod.name, active, joules


def time_of_day(day, hour):
    """Seconds after the first midnight: `time_of_day(1, 9.5)` is half past nine on the second day."""
    return day * DAY_S + hour * 3600.0
