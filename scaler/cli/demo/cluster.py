"""Simulates a Deployment, its GPUs, and the gateway in front of it. Pure: times are POSIX seconds, passed in.

A pod loads for `startup_s` and is then ready. Scaling down removes the newest pods first: a loading pod at once, a
ready one after it has answered its requests. A pod without a free GPU is created by the call after one becomes free.
The gateway holds requests, first come first served, only while no pod is ready; otherwise a request goes to the ready
pod with the fewest prompt tokens to read and stays there. Between two calls every event happens at its own time.

Worked example: at zero, a request at t=0 is held; `scale(1, 0.0)` creates a pod, which is ready at t=75 and gets the
request. 1 GPU from 0 to 80 is 80 GPU-seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from .engine import Completion, EngineProfile, Request, SimulatedEngine

# Of generated names in Kubernetes: no vowels, so no words (apimachinery's util/rand).
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(frozen=True, slots=True)
class DemoSlo:
    """The SLO of the demo: the first token within `first_token_s` plus twice the time to read the prompt."""

    first_token_s: float = 2.0
    decode_s: float = 0.5
    per_token_s: float = 0.060


def meets(objective: DemoSlo, profile: EngineProfile, answer: Completion) -> bool:
    request = answer.request
    first_s = answer.first_token_at - request.arrived_at
    decode_s = answer.finished_at - answer.first_token_at
    return (
        first_s <= objective.first_token_s + 2 * request.prompt_tokens / profile.prefill_tokens_per_s
        and decode_s <= objective.decode_s + objective.per_token_s * request.output_tokens
    )


@dataclass(slots=True)
class SimulatedReplica:
    """One pod with one GPU.

    gpu:                          index over all nodes.
    end_to_end_s, output_token_s: of each request that it has answered: from its arrival to its last token, and per
                                  token after the first.
    finished_at:                  when it has answered the last one; None: none yet.
    """

    name: str
    gpu: int
    created_at: float
    ready_at: float
    engine: SimulatedEngine
    draining_at: float | None = None
    end_to_end_s: list[float] = field(default_factory=list)
    output_token_s: list[float] = field(default_factory=list)
    finished_at: float | None = None

    def note(self, answers: Iterable[Completion]) -> None:
        """Records what it has answered since the last call."""
        for answer in answers:
            self.end_to_end_s.append(answer.finished_at - answer.submitted_at)
            later = max(answer.request.output_tokens - 1, 1)
            self.output_token_s.append((answer.finished_at - answer.first_token_at) / later)
            self.finished_at = answer.finished_at


@dataclass(slots=True)
class DemoTally:
    """Counts since the start. held: requests that came while no pod was ready. woken_at: when the first replica was
    requested for a request held at zero.
    """

    sent: int = 0
    held: int = 0
    answered: int = 0
    met: int = 0
    changes: int = 0
    most_wanted: int = 0
    slept: bool = False
    held_at_zero_at: float | None = None
    woken_at: float | None = None


class SimulatedCluster:
    def __init__(
        self,
        deployment: str,
        seed: int,
        now: float,
        gpus: int = 16,
        startup_s: float = 75.0,
        profile: EngineProfile | None = None,
        objective: DemoSlo | None = None,
    ) -> None:
        self.profile = profile or EngineProfile()
        self.objective = objective or DemoSlo()
        self.gpus = gpus
        self.wanted = 0
        self.held: deque[Request] = deque()
        self.replicas: list[SimulatedReplica] = []  # oldest first, with draining ones
        self.tally = DemoTally()
        self._deployment = deployment
        self._names = np.random.default_rng(seed)
        self._startup_s = startup_s
        self._now = now
        self._spent_gpu_s = 0.0  # by removed pods

    @property
    def ready(self) -> list[SimulatedReplica]:
        return [pod for pod in self.replicas if pod.draining_at is None and pod.ready_at <= self._now]

    @property
    def loading(self) -> list[SimulatedReplica]:
        return [pod for pod in self.replicas if pod.ready_at > self._now]

    @property
    def draining(self) -> list[SimulatedReplica]:
        return [pod for pod in self.replicas if pod.draining_at is not None]

    @property
    def in_system(self) -> int:
        """Requests without a response."""
        return len(self.held) + sum(pod.engine.unfinished for pod in self.replicas)

    def gpu_seconds(self) -> float:
        """From each pod's creation to the end of its drain."""
        return self._spent_gpu_s + sum(self._now - pod.created_at for pod in self.replicas)

    def advance(self, now: float) -> list[Completion]:
        """Simulates until `now`; returns the completions on the way."""
        answers: list[Completion] = []
        for at in sorted({pod.ready_at for pod in self.loading if pod.ready_at <= now}):
            self._advance_engines(at, answers)
            self._dispatch()
        self._advance_engines(now, answers)
        return answers

    def submit(self, request: Request, now: float) -> list[Completion]:
        """A request reaches the gateway; returns the completions until then."""
        answers = self.advance(now)
        self.tally.sent += 1
        self.tally.held += not self.ready
        if self.wanted == 0 and self.tally.held_at_zero_at is None:
            self.tally.held_at_zero_at = now
        self.held.append(request)
        self._dispatch()
        return answers

    def scale(self, wanted: int, now: float) -> list[Completion]:
        """Sets spec.replicas; returns the completions until then."""
        answers = self.advance(now)
        tally = self.tally
        if wanted != self.wanted:
            tally.changes += 1
            tally.most_wanted = max(tally.most_wanted, wanted)
            tally.slept = tally.slept or wanted == 0
            if self.wanted == 0 and tally.held_at_zero_at is not None and tally.woken_at is None:
                tally.woken_at = now
        self.wanted = wanted
        staying = [pod for pod in self.replicas if pod.draining_at is None]
        for pod in staying[wanted:]:
            self._retire(pod)
        self._reap()
        return answers

    def _retire(self, pod: SimulatedReplica) -> None:
        if pod.ready_at > self._now:
            self._remove(pod, self._now)
        else:
            pod.draining_at = self._now

    def _advance_engines(self, now: float, answers: list[Completion]) -> None:
        self._now = now
        for pod in self.replicas:
            completed = pod.engine.advance(now)
            pod.note(completed)
            answers += completed
            self.tally.answered += len(completed)
            self.tally.met += sum(meets(self.objective, self.profile, answer) for answer in completed)
        self._reap()

    def _reap(self) -> None:
        """Removes drained pods, and creates missing ones on free GPUs."""
        for pod in self.draining:
            if not pod.engine.unfinished and pod.draining_at is not None:
                self._remove(pod, max(pod.draining_at, pod.finished_at or pod.draining_at))
        used = {pod.gpu for pod in self.replicas}
        missing = self.wanted - sum(pod.draining_at is None for pod in self.replicas)
        for gpu in [gpu for gpu in range(self.gpus) if gpu not in used][: max(0, missing)]:
            self.replicas.append(self._create(gpu))

    def _create(self, gpu: int) -> SimulatedReplica:
        suffix = "".join(_ALPHABET[index] for index in self._names.integers(len(_ALPHABET), size=5))
        name = f"{self._deployment}-7f9c6d5b8d-{suffix}"
        return SimulatedReplica(name, gpu, self._now, self._now + self._startup_s, SimulatedEngine(self.profile))

    def _remove(self, pod: SimulatedReplica, at: float) -> None:
        self._spent_gpu_s += at - pod.created_at
        self.replicas.remove(pod)

    def _dispatch(self) -> None:
        ready = self.ready
        while self.held and ready:
            pod = min(ready, key=lambda pod: (pod.engine.pending_prompt_tokens, pod.engine.unfinished))
            pod.engine.submit(self.held.popleft(), self._now)
