"""A user's own server: a YAML file to a `Profile`, or everything that is wrong with it, with line and column.

It knows what can be said of a server and within which bounds; how a configuration's YAML is read, and how its mistakes
are said, is `scaler.config`'s. Times of a step are seconds, or written with a unit (11.5ms).

Worked example:

    name: mistral-7b-l40s
    start: 40s
    engine: {step: 16ms, per_sequence: 0.12ms, per_token: 1.1e-7, prompt_rate: 7000, kv_tokens: 190000}
    promise: {first: 2s, per_prompt_token: 0.3ms, rest: 500ms, per_output_token: 80ms}

is a profile on one GPU; a request with 1,000 prompt tokens keeps its promise if its first token comes within 2.3 s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from scaler.config.endpoint import Section, Text
from scaler.config.errors import Finding, Problem
from scaler.config.loader import Language, parse_as
from scaler.config.loader import read as text_of
from scaler.config.scalars import duration

from .columns import ServerColumns
from .profiles import PROFILES, ServerProfile, Slo

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
    """What users are told: so long to the first token, then so long to the last."""

    first: Seconds
    """To the first token of a request, whatever its prompt."""
    per_prompt_token: Seconds = 0.0
    """More for each token of its prompt."""
    rest: Seconds | None = None
    """From the first token to the last, whatever the length. Left out: nothing is promised of it."""
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
    promise: SloSection
    """What users are told."""


def load_profile(path: str) -> tuple[ServerProfile, list[Problem]]:
    """One of the profiles built in, by its name, or the one in a file, and warnings. Raises `ConfigErrors`."""
    return (PROFILES[path], []) if path in PROFILES else parse_profile(text_of(path), path)


def parse_profile(text: str, file: str) -> tuple[ServerProfile, list[Problem]]:
    """The profile in a text, and warnings; `file` is for the places only. Raises `ConfigErrors`."""
    said, warnings = parse_as(Language(ServerFile, _findings, GUIDE), text, file)
    engine, promise = said.engine, said.promise
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
    rest = float("inf") if promise.rest is None else promise.rest
    told = Slo(promise.first, promise.per_prompt_token, rest, promise.per_output_token, promise.share)
    return ServerProfile(said.name, server, said.start, said.gpus, told, said.start_sigma), warnings


def _findings(said: ServerFile) -> Iterator[Finding]:
    engine, promise = said.engine, said.promise
    if said.name in PROFILES:
        yield Finding(("name",), f"must be another name than those built in ({', '.join(PROFILES)})")
    if engine.chunk < engine.batch:
        bound = f"must be at least batch ({engine.batch}): each sequence needs a token of every step"
        yield Finding(("engine", "chunk"), bound, str(engine.chunk), rests_on=(("engine", "batch"),))
    alone = engine.step + engine.per_sequence
    if promise.rest is not None and promise.per_output_token < alone:
        yield Finding(
            ("promise", "per_output_token"),
            f"must be at least step + per_sequence ({alone * 1000:g} ms): a sequence that is alone takes as long",
            f"{promise.per_output_token:g}",
            rests_on=(("engine", "step"), ("engine", "per_sequence"), ("promise", "rest")),
        )
    if promise.per_prompt_token < 1 / engine.prompt_rate:
        yield Finding(
            ("promise", "per_prompt_token"),
            f"should be at least 1/prompt_rate ({1000 / engine.prompt_rate:.3g} ms): prompts that are long enough "
            "cannot keep the promise",
            f"{promise.per_prompt_token:g}",
            rests_on=(("engine", "prompt_rate"),),
            is_warning=True,
        )
