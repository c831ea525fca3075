"""Describes servers: what a replica can do, how long it takes to start, and its SLO. Reads profiles from YAML.

Three profiles are built in. How they were got: a step of Llama-3.1-8B on an A100-80 from vLLM's published decode rates
(75 tokens/s for one sequence, 6.6 times that for eight), 70B at tensor parallelism 4 from a roofline and not measured.
Times of a step in YAML are seconds, or have a unit (11.5ms); `scaler.config` reads the YAML and places its errors.

Worked example:

    name: mistral-7b-l40s
    start: 40s
    engine: {step: 16ms, per_sequence: 0.12ms, per_token: 1.1e-7, prompt_rate: 7000, kv_tokens: 190000}
    slo: {first: 2s, per_prompt_token: 0.3ms, rest: 500ms, per_output_token: 80ms}

is a profile on one GPU; a request with 1,000 prompt tokens meets its SLO if its first token comes within 2.3 s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

import numpy as np
from pydantic import Field

from exporter.model import Floats
from scaler.config.endpoint import Section, Text
from scaler.config.errors import Finding, Problem
from scaler.config.loader import Language, parse_as
from scaler.config.loader import read as text_of
from scaler.config.scalars import duration

from .columns import Ints, Mask, ServerColumns

# A sum of a day's floats is off by some 1e-10: jobs of a whole minute that begin at their very bound are in time.
DUST_S = 1e-6


@dataclass(frozen=True, slots=True)
class ReplaySlo:
    """The SLO of a server. Seconds; `share` of the requests must meet both.

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
    slo: ReplaySlo
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
    slo=ReplaySlo(2.0, 2 / 12_000, 0.5, 0.060),
)
B = ServerProfile(
    "B",  # Llama-3-70B, tensor parallelism 4
    _engine(0.024, 2e-4, 6e-8, 4_000.0, 400_000.0),
    start_s=150.0,
    gpus=4,
    slo=ReplaySlo(3.0, 2 / 4_000, 0.8, 0.100),
)
# One job at a time, pulled from a queue: `output` is its seconds, and it must begin within two minutes.
C = ServerProfile(
    "C",
    ServerColumns(1.0, 0.0, 0.0, 1e12, chunk=2048, batch=1, kv_tokens=1e12, slots=1),
    start_s=45.0,
    gpus=1,
    slo=ReplaySlo(121.0, 0.0),  # its first second is over a second after it has begun
)

PROFILES: Mapping[str, ServerProfile] = MappingProxyType({profile.name: profile for profile in (A, B, C)})


Seconds = Annotated[float, duration(0.0, 3600.0)]
SomeSeconds = Annotated[float, duration(1e-6, 3600.0)]
Tokens = Annotated[int, Field(ge=1, le=10**9)]
MOST_TOKENS = 1e12
GUIDE = "docs/reference/traces.md"


class EngineSection(Section):
    """How one replica works. A step that reads c prompt tokens beside n decoding sequences of x tokens in all takes
    step + c/prompt_rate + per_sequence*n + per_token*x seconds.
    """

    step: SomeSeconds
    """Of a step whatever is in it: one over the tokens/s of a single sequence, nearly."""
    per_sequence: Seconds = 0.0
    """More for each sequence that is decoded."""
    per_token: Seconds = 0.0
    """More for each token of their contexts: reading the KV cache."""
    prompt_rate: Annotated[float, Field(gt=0.0, le=MOST_TOKENS)]
    """Prompt tokens read per second where nothing else is done."""
    chunk: Tokens = 2048
    """Tokens in a step at most (vLLM's max_num_batched_tokens)."""
    batch: Annotated[int, Field(ge=1, le=4096)] = 256
    """Sequences decoded together at most (max_num_seqs)."""
    kv_tokens: Annotated[float, Field(gt=0.0, le=MOST_TOKENS)]
    """Tokens for which the KV cache has room."""
    slots: Annotated[int, Field(ge=0, le=4096)] = 0
    """0: requests are sent to a replica at once. Else it is given work only while it has fewer than so many, and the
    rest waits in the queue in front, as jobs do."""


class SloSection(Section):
    """The SLO: time to the first token, then to the last."""

    first: Seconds
    """To the first token of a request, whatever its prompt."""
    per_prompt_token: Seconds = 0.0
    """More for each token of its prompt."""
    rest: Seconds | None = None
    """From the first token to the last, whatever the length. Omitted: no limit."""
    per_output_token: Seconds = 0.0
    """More for each token of the answer."""
    share: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.99
    """Of requests that must have both. 1 cannot be kept by anybody."""


class ServerFile(Section):
    """A server to replay loads against."""

    name: Text
    """What it is called in the results."""
    start: SomeSeconds
    """From a pod's creation to ready: image, weights, graphs. The median."""
    start_sigma: Annotated[float, Field(ge=0.0, le=2.0)] = 0.0
    """Of the logarithm of that time. 0: always the same; 0.35: a third more or less."""
    gpus: Annotated[int, Field(ge=1, le=1024)] = 1
    """GPUs of one replica."""
    engine: EngineSection
    """How one replica works."""
    slo: SloSection
    """The SLO of the service."""


def load_profile(path: str) -> tuple[ServerProfile, list[Problem]]:
    """One of the profiles built in, by its name, or the one in a file, and warnings. Raises `ConfigErrors`."""
    return (PROFILES[path], []) if path in PROFILES else parse_profile(text_of(path), path)


def parse_profile(text: str, file: str) -> tuple[ServerProfile, list[Problem]]:
    """The profile in a text, and warnings; `file` is for the places only. Raises `ConfigErrors`."""
    server_file, warnings = parse_as(Language(ServerFile, _findings, GUIDE), text, file)
    engine, section = server_file.engine, server_file.slo
    server = ServerColumns(
        engine.step,
        engine.per_sequence,
        engine.per_token,
        engine.prompt_rate,
        engine.chunk,
        engine.batch,
        engine.kv_tokens,
        engine.slots,
    )
    rest = float("inf") if section.rest is None else section.rest
    slo = ReplaySlo(section.first, section.per_prompt_token, rest, section.per_output_token, section.share)
    return ServerProfile(
        server_file.name, server, server_file.start, server_file.gpus, slo, server_file.start_sigma
    ), warnings


def _findings(server_file: ServerFile) -> Iterator[Finding]:
    engine, slo = server_file.engine, server_file.slo
    if server_file.name in PROFILES:
        yield Finding(("name",), f"must be another name than those built in ({', '.join(PROFILES)})")
    if engine.chunk < engine.batch:
        bound = f"must be at least batch ({engine.batch}): each sequence needs a token of every step"
        yield Finding(("engine", "chunk"), bound, str(engine.chunk), rests_on=(("engine", "batch"),))
    alone = engine.step + engine.per_sequence
    if slo.rest is not None and slo.per_output_token < alone:
        yield Finding(
            ("slo", "per_output_token"),
            f"must be at least step + per_sequence ({alone * 1000:g} ms): a sequence that is alone takes as long",
            f"{slo.per_output_token:g}",
            rests_on=(("engine", "step"), ("engine", "per_sequence"), ("slo", "rest")),
        )
    if slo.per_prompt_token < 1 / engine.prompt_rate:
        yield Finding(
            ("slo", "per_prompt_token"),
            f"should be at least 1/prompt_rate ({1000 / engine.prompt_rate:.3g} ms): prompts that are long enough "
            "cannot meet the SLO",
            f"{slo.per_prompt_token:g}",
            rests_on=(("engine", "prompt_rate"),),
            is_warning=True,
        )
