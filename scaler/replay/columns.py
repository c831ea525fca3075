"""Holds a trace and the arrays that a simulated Deployment lives in, with the arithmetic of a replica's decode steps.

Few wide arrays rather than many narrow ones: numba counts every array in and out of every part of the engine.

A run of m steps with n sequences of x tokens in all takes m*(step + per_sequence*n + per_token*x) plus
per_token*n*m*(m-1)/2, because every step makes each context a token longer.

Worked example: step 0.01 s and per_token 0.001 s, one sequence of 11 tokens: three steps take 0.021 + 0.022 + 0.023 s.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from exporter.model import Floats
from scaler.jit import part

Ints: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]

NONE = -1  # no request, no slot

# Of each request, times in seconds. FIRST and DONE are NaN until its first and its last token.
AT, FIRST, DONE = range(3)
REQUEST_TIMES = 3
# … and tokens: PROMPT and OUTPUT of the load, LEFT of the prompt; NEXT is the request behind it in its queue.
PROMPT, OUTPUT, LEFT, NEXT = range(4)
REQUEST_COUNTS = 4

# Of each replica's slot, times in seconds; BOUNDARY: when its start or present run of steps ends; inf if it has none.
# CONTEXT: tokens of the sequences it decodes; KV: those and the prompts it has admitted. BUSY: seconds in all.
# COUNTED: until when its requests are in REQUEST_S.
CREATED, READY_AT, BEGAN, BOUNDARY, CONTEXT, KV, BUSY, COUNTED = range(8)
REPLICA_NUMBERS = 8
# DOING: below. STEPS: decode steps in all. RUN: steps of the present run. DECODING: sequences. QUEUED: requests with
# a partly read prompt, ADMITTED those of them that have a place. PENDING: their tokens. CHUNK: read in this step.
PHASE, DOING, STEPS, RUN, DECODING, QUEUED, ADMITTED, HEAD, TAIL, PENDING, CHUNK = range(11)
REPLICA_COUNTS = 11

# PHASE. ASLEEP: its engine is in sleep mode, since BEGAN; WAKING: until BOUNDARY. Both are IDLE.
FREE, STARTING, READY, DRAINING, ASLEEP, WAKING = range(6)
IDLE, PREFILL, DECODE, BETWEEN = range(4)  # DOING

# Of the world. POD_S: seconds of pods that have ended. DECODE_S: seconds between the tokens of all sequences.
# REQUEST_S: seconds of requests at the gateway, up to HELD_COUNTED, and in pods that do not drain, up to COUNTED.
# ASLEEP_S: seconds of pods asleep, of those that have been woken or have ended. A request that comes while engines
# sleep is seen at the next multiple of WAKE_LOOK_S, and they are awake WAKE_S later.
NOW, POD_S, DECODE_S, REQUEST_S, HELD_COUNTED, ASLEEP_S, WAKE_LOOK_S, WAKE_S = range(8)
WORLD_NUMBERS = 8
# ALIVE: slots in `order`, oldest first. HELD: requests at the gateway, from GATE_HEAD to GATE_TAIL. STARTS: pods made.
# FIRSTS: requests with a first token; READ_TOKENS: their prompts. FINISHED_TOKENS: output of finished requests.
ALIVE, ARRIVED, PROMPT_TOKENS, FINISHED, TOKENS, HELD, GATE_HEAD, GATE_TAIL, STARTS = range(9)
FIRSTS, READ_TOKENS, FINISHED_TOKENS = range(9, 12)
WORLD_COUNTS = 12

# Bucket bounds of the engine's histograms, seconds, as vLLM 0.11 has them (vllm/v1/metrics/loggers.py): time to first
# token, and time per output token of a finished request. One more bucket is above the last.
TTFT_BOUNDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
    640.0, 2560.0,
)  # fmt: skip
TPOT_BOUNDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
TTFT, TPOT = range(2)
BUCKETS = max(len(TTFT_BOUNDS), len(TPOT_BOUNDS)) + 1


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """When requests arrive, and how many tokens each brings and takes.

    at: shape (requests,), seconds from the trace's beginning, ascending. prompt, output: tokens, same shape.
    """

    name: str
    at: Floats
    prompt: Ints
    output: Ints

    def __post_init__(self) -> None:
        if not len(self.at) == len(self.prompt) == len(self.output):
            raise ValueError(f"{self.name}: at, prompt and output must have the same length")
        if not len(self.at):
            raise ValueError(f"{self.name}: has no request")
        if not np.isfinite(self.at).all() or self.at[0] < 0.0 or (np.diff(self.at) < 0.0).any():
            raise ValueError(f"{self.name}: arrivals must be finite, ascending and not before second 0")

    @property
    def span_s(self) -> float:
        """Seconds until the last arrival."""
        return float(self.at[-1])


class ServerColumns(NamedTuple):
    """How one replica works; the times are seconds, the rest tokens or sequences.

    A step that reads `c` prompt tokens beside `n` decoding sequences of `x` tokens in all takes
    step + c/prompt_rate + per_sequence*n + per_token*x.

    slots: 0 is: requests are sent on at once. Else a replica is given work only while it has fewer than so many.
    """

    step: float
    per_sequence: float
    per_token: float
    prompt_rate: float
    chunk: int
    batch: int
    kv_tokens: float
    slots: int


class ReplayWorld(NamedTuple):
    """One simulated Deployment and its load.

    request_times, request_counts: a row per request, in order of arrival.
    replicas, replica_counts: a row per slot; heap: shape (slots, batch, 2), the step at which a sequence ends and its
        request, least first.
    order: slots of living pods, oldest first.
    histograms: shape (2, BUCKETS): requests by TTFT and by TPOT, not cumulative.
    """

    request_times: Floats
    request_counts: Ints
    replicas: Floats
    replica_counts: Ints
    heap: Ints
    order: Ints
    numbers: Floats
    counts: Ints
    histograms: Ints

    @classmethod
    def of(cls, at: Floats, prompt: Ints, output: Ints, slots: int, batch: int) -> ReplayWorld:
        """A load before its first request, and no replica. slots: pods alive at one moment, at the most."""
        times = np.full((len(at), REQUEST_TIMES), np.nan)
        times[:, AT] = at
        counts = np.full((len(at), REQUEST_COUNTS), NONE, dtype=np.int64)
        # A request without a prompt, or without an answer, is still one step of work.
        counts[:, PROMPT] = counts[:, LEFT] = np.maximum(prompt, 1)
        counts[:, OUTPUT] = np.maximum(output, 1)
        world = np.zeros(WORLD_COUNTS, dtype=np.int64)
        world[[GATE_HEAD, GATE_TAIL]] = NONE
        return cls(
            times,
            counts,
            np.zeros((slots, REPLICA_NUMBERS)),
            np.zeros((slots, REPLICA_COUNTS), dtype=np.int64),
            np.zeros((slots, batch, 2), dtype=np.int64),
            np.zeros(slots, dtype=np.int64),
            np.zeros(WORLD_NUMBERS),
            world,
            np.zeros((2, BUCKETS), dtype=np.int64),
        )


@part
def run_s(server: ServerColumns, sequences: int, context: float, steps: int) -> float:
    """Seconds of a run of decode steps."""
    first = server.step + server.per_sequence * sequences + server.per_token * context
    return steps * first + server.per_token * sequences * (steps * (steps - 1) / 2)


@part
def steps_within(server: ServerColumns, sequences: int, context: float, longest: int, seconds: float) -> int:
    """How many steps of a run have ended after so many seconds."""
    slope = server.per_token * sequences
    first = server.step + server.per_sequence * sequences + server.per_token * context
    if slope > 0.0:
        half = first - slope / 2
        steps = int((sqrt(half * half + 2 * slope * seconds) - half) / slope)
    else:
        steps = int(seconds / first)
    steps = max(0, min(steps, longest))
    while steps < longest and run_s(server, sequences, context, steps + 1) <= seconds:  # what rounding took
        steps += 1
    while steps > 0 and run_s(server, sequences, context, steps) > seconds:
        steps -= 1
    return steps
