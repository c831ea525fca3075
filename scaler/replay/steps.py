"""How long a replica's decode steps take. Pure arithmetic, compiled into whoever uses it.

A run of m steps with n sequences of x tokens in all takes m*(step + per_sequence*n + per_token*x) plus
per_token*n*m*(m-1)/2, because every step makes each context a token longer.

Worked example: step 0.01 s and per_token 0.001 s, one sequence of 11 tokens: three steps take 0.021 + 0.022 + 0.023 s.
"""

from __future__ import annotations

from math import sqrt

from scaler.jit import part

from .columns import ServerColumns


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
