"""The servers that loads are replayed against: what a replica can do, how long it takes to start, what is promised.

The three that are built in stand for what people run; whoever knows their own server's numbers writes them into a file
(`servers.py` reads it). How they were got: a step of Llama-3.1-8B on an A100-80 from vLLM's published decode rates (75
tokens/s for one sequence, 6.6 times that for eight), 70B at tensor parallelism 4 from a roofline and not measured.

Worked example: on profile A a request with 1,200 prompt tokens keeps its promise if its first token comes within
2 + 2*1200/12000 = 2.2 s, and its other 100 within 0.5 + 100*0.06 = 6.5 s of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from exporter.model import Floats

from .columns import Ints, Mask, ServerColumns

# A sum of a day's floats is off by some 1e-10: jobs of a whole minute that begin at their very bound are in time.
DUST_S = 1e-6


@dataclass(frozen=True, slots=True)
class Slo:
    """What users are told. Seconds; `share` of the requests must have both.

    first_s + first_per_prompt_s*prompt: until the first token. rest_s + rest_per_token_s*output: from then to the end.
    """

    first_s: float
    first_per_prompt_s: float
    rest_s: float = float("inf")
    rest_per_token_s: float = 0.0
    share: float = 0.99

    def kept(self, first: Floats, rest: Floats, prompt: Ints, output: Ints) -> Mask:
        """Which requests have it; all of shape (requests,), NaN where a request never got so far."""
        kept: Mask = first <= self.within_s(prompt)
        kept &= (output <= 1) | (rest <= self.rest_s + self.rest_per_token_s * output + DUST_S)
        return kept

    def within_s(self, prompt: Ints) -> Floats:
        """Seconds until the first token at the most; shape (requests,)."""
        return np.asarray(self.first_s + self.first_per_prompt_s * prompt + DUST_S, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class ServerProfile:
    """gpus: of one replica. start_s: seconds from a pod's creation to ready, the median; start_sigma: of the logarithm
    of that time (0 is always the same; 0.35 is a third more or less).
    """

    name: str
    server: ServerColumns
    start_s: float
    gpus: int
    promise: Slo
    start_sigma: float = 0.0

    def starts(self, seed: int, count: int = 4096) -> Floats:
        """Start-up times drawn from the distribution, shape (count,)."""
        rng = np.random.default_rng(seed)
        return self.start_s * np.exp(self.start_sigma * rng.standard_normal(count))


def _engine(step: float, per_sequence: float, per_token: float, prompt_rate: float, kv_tokens: float) -> ServerColumns:
    return ServerColumns(
        step, per_sequence, per_token, prompt_rate, chunk=2048, batch=256, kv_tokens=kv_tokens, slots=0
    )


A = ServerProfile(
    "A",  # Llama-3.1-8B on one A100-80
    _engine(0.0115, 1e-4, 6.5e-8, 12_000.0, 412_000.0),
    start_s=75.0,
    gpus=1,
    promise=Slo(2.0, 2 / 12_000, 0.5, 0.060),
)
B = ServerProfile(
    "B",  # Llama-3-70B, tensor parallelism 4
    _engine(0.024, 2e-4, 6e-8, 4_000.0, 400_000.0),
    start_s=150.0,
    gpus=4,
    promise=Slo(3.0, 2 / 4_000, 0.8, 0.100),
)
# One job at a time, pulled from a queue: `output` is its seconds, and it must begin within two minutes.
C = ServerProfile(
    "C",
    ServerColumns(1.0, 0.0, 0.0, 1e12, chunk=2048, batch=1, kv_tokens=1e12, slots=1),
    start_s=45.0,
    gpus=1,
    promise=Slo(121.0, 0.0),  # its first second is over a second after it has begun
)

PROFILES: Mapping[str, ServerProfile] = MappingProxyType({profile.name: profile for profile in (A, B, C)})
