"""Simulates one inference replica: continuous batching with chunked prefill, exact between events. Pure.

There is no loop over tokens: while only decoding goes on, every step takes `k·B` longer than the one before, so n steps
are one arithmetic series.

A step with B sequences decoding, `ctx` tokens in their contexts and C prompt tokens to read takes
`a + C/P + b·B + k·ctx` seconds, where C is the waiting prompt tokens, up to 2048 - B. A request's first token comes at
the end of the step that reads the last of its prompt, then one token per step. Steps are not interrupted: a request
that arrives during one joins the next, if there are fewer than 256 sequences and the cache has room for its whole
prompt and output (so nothing is ever evicted); those behind it wait.

Worked example: a single request of 1,200 tokens in, 3 out: one step of 0.0115 + 1200/12000 = 0.1115 s for the first
token, then two of 0.0115 + 0.0001 + 6.5e-8 · 1201 (then 1202) s.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """Speed and size of a replica. The defaults are Llama-3.1-8B on one A100-80."""

    step_s: float = 0.0115  # a: every step
    per_sequence_s: float = 1e-4  # b: every sequence decoding in it
    per_context_token_s: float = 6.5e-8  # k: every token in their contexts
    prefill_tokens_per_s: float = 12_000.0  # P
    chunk_tokens: int = 2048
    max_sequences: int = 256
    kv_tokens: int = 412_000


@dataclass(frozen=True, slots=True)
class Request:
    """arrived_at: POSIX seconds when the user sent it, however long the gateway held it."""

    number: int
    arrived_at: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Completion:
    """submitted_at: when it reached the engine. All POSIX seconds."""

    request: Request
    submitted_at: float
    first_token_at: float
    finished_at: float


@dataclass(slots=True)
class _Sequence:
    request: Request
    submitted_at: float
    prompt_left: int
    first_token_at: float = math.nan


class SimulatedEngine:
    """Call `advance(now)` before `submit(…, now)`, with a `now` that never decreases."""

    __slots__ = (
        "_boundary",
        "_busy_s",
        "_context",
        "_decoded",
        "_decoding",
        "_prefilled",
        "_prefilling",
        "_profile",
        "_queue",
        "_reserved",
        "finished",
        "first_token_s",
        "gap_s",
        "gaps",
        "generated_tokens",
        "pending_prompt_tokens",
        "prompt_tokens",
    )

    def __init__(self, profile: EngineProfile) -> None:
        self._profile = profile
        self._boundary = 0.0  # begin of the present step
        self._busy_s = 0.0  # seconds of finished steps
        self._decoded = 0  # decoding steps so far: a sequence ends when this reaches its number in the heap
        self._queue: deque[_Sequence] = deque()
        self._prefilling: deque[_Sequence] = deque()
        self._decoding: list[tuple[int, int, _Sequence]] = []
        self._context = 0  # tokens in the contexts of decoding sequences
        self._prefilled = 0  # tokens read of prompts in prefill
        self._reserved = 0  # cache tokens reserved for admitted sequences
        self.finished = 0
        self.first_token_s: list[float] = []  # of each request that had its first token: seconds since it came
        self.gaps, self.gap_s = 0, 0.0  # times between two tokens, and their sum
        self.prompt_tokens = 0
        self.generated_tokens = 0
        self.pending_prompt_tokens = 0

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def running(self) -> int:
        return len(self._prefilling) + len(self._decoding)

    @property
    def unfinished(self) -> int:
        return self.waiting + self.running

    @property
    def kv_used(self) -> float:
        """Used ratio of the cache."""
        return (self._context + self._prefilled) / self._profile.kv_tokens

    def busy_s(self, now: float) -> float:
        """Seconds of work since the start."""
        return self._busy_s + (now - self._boundary if self.unfinished else 0.0)

    def submit(self, request: Request, now: float) -> None:
        if request.prompt_tokens + request.output_tokens > self._profile.kv_tokens:
            raise ValueError(f"request {request.number} is larger than the cache of {self._profile.kv_tokens} tokens")
        if not self.unfinished:
            self._boundary = now
        self._queue.append(_Sequence(request, now, request.prompt_tokens))
        self.pending_prompt_tokens += request.prompt_tokens

    def advance(self, now: float) -> list[Completion]:
        """Simulates until `now`; returns the completions on the way, in order."""
        answers: list[Completion] = []
        while self.unfinished:
            self._admit()
            moved = self._prefill(now) if self._prefilling else self._decode(now)
            if not moved:
                break
            self._finish(answers)
        return answers

    def _admit(self) -> None:
        while self._queue and self._queue[0].submitted_at <= self._boundary:
            request = self._queue[0].request
            need = request.prompt_tokens + request.output_tokens
            if self.running >= self._profile.max_sequences or self._reserved + need > self._profile.kv_tokens:
                return
            self._reserved += need
            self._prefilling.append(self._queue.popleft())

    def _prefill(self, now: float) -> bool:
        """One step that reads prompts, if it ends by `now`."""
        profile, batch = self._profile, len(self._decoding)
        chunk = min(profile.chunk_tokens - batch, sum(sequence.prompt_left for sequence in self._prefilling))
        end = self._boundary + self._base_s() + chunk / profile.prefill_tokens_per_s
        if end > now:
            return False
        self._pass_steps(1, end)
        self.prompt_tokens += chunk
        self.pending_prompt_tokens -= chunk
        self._prefilled += chunk
        while self._prefilling and chunk >= self._prefilling[0].prompt_left:
            sequence = self._prefilling.popleft()
            chunk -= sequence.prompt_left
            self._begin_decoding(sequence)
        if chunk:
            self._prefilling[0].prompt_left -= chunk
        return True

    def _begin_decoding(self, sequence: _Sequence) -> None:
        request = sequence.request
        sequence.first_token_at = self._boundary
        self.first_token_s.append(self._boundary - sequence.submitted_at)
        self._prefilled -= request.prompt_tokens
        self._context += request.prompt_tokens + 1
        self.generated_tokens += 1
        entry = (self._decoded + request.output_tokens - 1, request.number, sequence)
        heapq.heappush(self._decoding, entry)

    def _decode(self, now: float) -> bool:
        """As many steps as end by `now`, up to the next change of the batch."""
        steps = min(self._decoding[0][0] - self._decoded, self._steps_within(now))
        if self._queue and self._queue[0].submitted_at > self._boundary:
            arrival = self._queue[0].submitted_at
            before = self._steps_within(arrival)
            steps = min(steps, before if self._boundary + self._series_s(before) >= arrival else before + 1)
        if steps <= 0:
            return False
        self._pass_steps(steps, self._boundary + self._series_s(steps))
        return True

    def _base_s(self) -> float:
        profile = self._profile
        return (
            profile.step_s + profile.per_sequence_s * len(self._decoding) + profile.per_context_token_s * self._context
        )

    def _series_s(self, steps: int) -> float:
        """Seconds that `steps` decoding steps take: the context grows by one token per sequence and step."""
        growth = self._profile.per_context_token_s * len(self._decoding)
        return steps * self._base_s() + growth * steps * (steps - 1) / 2

    def _steps_within(self, until: float) -> int:
        """The most steps that end by `until`: the root of q·n² + p·n = seconds, made exact by one comparison."""
        seconds = until - self._boundary
        q = self._profile.per_context_token_s * len(self._decoding) / 2
        p = self._base_s() - q
        steps = int((math.sqrt(p * p + 4 * q * seconds) - p) / (2 * q))
        while self._boundary + self._series_s(steps + 1) <= until:
            steps += 1
        while steps > 0 and self._boundary + self._series_s(steps) > until:
            steps -= 1
        return steps

    def _pass_steps(self, steps: int, end: float) -> None:
        batch = len(self._decoding)
        self._busy_s += end - self._boundary
        self.gap_s += batch * (end - self._boundary)
        self.gaps += batch * steps
        self._boundary = end
        if batch:
            self._decoded += steps
            self._context += batch * steps
            self.generated_tokens += batch * steps

    def _finish(self, answers: list[Completion]) -> None:
        while self._decoding and self._decoding[0][0] <= self._decoded:
            _, _, sequence = heapq.heappop(self._decoding)
            request = sequence.request
            need = request.prompt_tokens + request.output_tokens
            self._context -= need
            self._reserved -= need
            self.finished += 1
            answers.append(Completion(request, sequence.submitted_at, sequence.first_token_at, self._boundary))
