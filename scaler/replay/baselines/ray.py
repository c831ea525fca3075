"""Ray Serve: requests ongoing per replica, after a delay in which it wanted the same direction all the time.

Sources, in ray-project/ray (2.5x): `desired` is _core_replica_queue_length_policy and _apply_scaling_factors, and
`Delay` is _apply_delay_logic, of python/ray/serve/autoscaling_policy.py; the defaults are AutoscalingConfig's in
python/ray/serve/config.py.

Ages: handles tell the controller each 10 s their mean of the last 30 s (look_back_period_s), of what is queued and what
is ongoing; here that is sampled each 2 s. The controller decides ten times a second, but sees nothing new in between,
so its counting of decisions in a row is counting of seconds.

Worked example: 3 running replicas, 12 requests, target 2: 12/2 = 6 replicas, ordered if that was above the target for
more than 30 s without a break.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import ceil

from ..baseline import Observation
from ..columns import READY
from ..metric_pages import AT_GATE, POD_PHASE, POD_RUNNING, POD_WAITING, RUNNING, WAITING

SAMPLE_S = 2.0
PUSH_S = 10.0


@dataclass(frozen=True, slots=True)
class RaySpec:
    """target: requests per replica. Delays in seconds; to_zero_s is that of the last one."""

    target: float = 2.0
    up_s: float = 30.0
    down_s: float = 600.0
    to_zero_s: float = 600.0
    up_factor: float = 1.0
    down_factor: float = 1.0
    look_back_s: float = 30.0
    min_replicas: int = 1
    max_replicas: int = 32


def desired(spec: RaySpec, running: int, requests: float) -> int:
    """Raises ZeroDivisionError if none runs: that is `Ray`'s cold start."""
    wanted = running * (requests / (spec.target * running))
    factor = spec.up_factor if wanted > running else spec.down_factor
    scaled = ceil(running + factor * (wanted - running))
    if ceil(wanted) < running and scaled == running:
        scaled -= 1
    return max(spec.min_replicas, min(spec.max_replicas, scaled))


class Delay:
    """How long it has wanted more, or less, without a break."""

    def __init__(self) -> None:
        self._direction, self._since = 0, 0.0

    def decide(self, spec: RaySpec, wanted: int, target: int, now: float) -> int:
        direction = (wanted > target) - (wanted < target)
        if direction != self._direction:
            self._direction, self._since = direction, now
        if direction == 0:
            return target
        delay_s = spec.up_s if direction > 0 else spec.to_zero_s if target == 1 else spec.down_s
        if now - self._since < delay_s:
            return target
        self._direction = 0
        return wanted if direction > 0 or target == 1 else max(1, wanted)


class Ray:
    """One deployment."""

    every_s = SAMPLE_S

    def __init__(self, name: str, spec: RaySpec) -> None:
        self.name, self.first, self._spec = name, max(1, spec.min_replicas), spec
        self._samples: deque[float] = deque(maxlen=max(1, int(spec.look_back_s / SAMPLE_S)))
        self._delay, self._requests, self._push_at = Delay(), 0.0, 0.0

    def step(self, observation: Observation) -> int | None:
        spec, now, target = self._spec, observation.now, observation.wanted
        self._samples.append(on_ready_pods(observation) + float(observation.pages[AT_GATE]))
        if now >= self._push_at:
            self._push_at += PUSH_S
            self._requests = sum(self._samples) / len(self._samples)
        if observation.ready == 0:
            # _get_cold_start_scale_up_replicas: past all delays. A handle that begins to queue tells it at once.
            queued = self._samples[-1] > 0.0
            return max(ceil(spec.up_factor), target) if queued else target
        return self._delay.decide(spec, desired(spec, observation.ready, self._requests), target, now)


def on_ready_pods(observation: Observation) -> float:
    if observation.existing == observation.wanted:  # none is draining, and one that starts has nothing
        return float(observation.pages[WAITING] + observation.pages[RUNNING])
    each = observation.each
    return float(each[each[:, POD_PHASE] == READY][:, [POD_WAITING, POD_RUNNING]].sum())
