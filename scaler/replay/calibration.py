"""Fits a server profile from an engine's own counters, read at several times. Pure.

Between two reads, the counters give the mean time between two tokens of a sequence, the sequences per step, the prompt
tokens and the seconds in which they were read; gauges give the tokens of the contexts. A step takes
`step + prompt tokens / prompt_rate + per_sequence*sequences + per_token*context` (`servers`), so the first three
unknowns are a least-squares fit of the times between tokens over these windows, none below 0. A term is left out if
the windows do not show it: with the same concurrency everywhere, all of the time is `step`. The seconds of a prompt are
those of a whole step, so what the step takes without it is subtracted, where the number of prompts is known.

Counters that move at a request's end (llama.cpp) need windows of several times the longest request.

Worked example: one sequence with a context of 100 has 11 ms between two tokens, and four with 400 have 14 ms: together
with a third window that is `step: 10ms` and `per_sequence: 1ms`; if the context grows in one of them without the time,
`per_token` is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from math import isnan
from typing import NamedTuple

import numpy as np

from exporter.model import Floats
from exporter.textformat import Page

LEAST_TOKENS = 100.0  # generated in a window: fewer say nothing
_NO_LIMIT = 1e12
# Prompts are read undisturbed where the fewest sequences decode: there the rate is measured, over this share of them.
_PROMPT_SHARE = 0.1
# The prompts' rate and the time of a step depend on each other. On vLLM the third round changed the rate by 0.01 %.
_ROUNDS = 5


class EngineCounters(NamedTuple):
    """Totals of one engine since its start, and one gauge.

    prompts: that were read; 0 if unknown. prompt_s: seconds in which they were, added up over requests. gap_s: times
    between two tokens, added up over all `gaps`. sequence_steps: sequences decoded, added up over steps. context:
    tokens of all sequences in progress, since the read before; NaN if unknown.
    """

    prompt_tokens: float
    prompt_s: float
    gaps: float
    gap_s: float
    steps: float
    sequence_steps: float
    context: float = float("nan")
    prompts: float = 0.0


class Calibrated(NamedTuple):
    """Seconds, and tokens per second. error: mean error of the fitted times between tokens, 0..1. windows: used."""

    step: float
    per_sequence: float
    per_token: float
    prompt_rate: float
    error: float
    windows: int


class NotCalibrated(ValueError):  # noqa: N818 - named for what it is
    """The reads do not suffice; the message is for people."""


def totals(page: Page) -> Mapping[str, float]:
    """Every series' value, added up by name: engines of one process, and finish reasons, are parts."""
    sums: dict[str, float] = {}
    for name, value in zip(page.layout.names, page.values.tolist(), strict=True):
        sums[name] = sums.get(name, 0.0) + value
    return sums


def engine_counters(page: Page, context: float = float("nan")) -> EngineCounters:
    """The counters of vLLM or llama.cpp. context: if the page has none. Raises NotCalibrated."""
    series = totals(page)
    try:
        if "llamacpp:n_decode_total" in series:
            steps = series["llamacpp:n_decode_total"]
            return EngineCounters(
                prompt_tokens=series["llamacpp:prompt_tokens_total"],
                prompt_s=series["llamacpp:prompt_seconds_total"],
                gaps=series["llamacpp:tokens_predicted_total"],
                gap_s=series["llamacpp:tokens_predicted_seconds_total"],
                steps=steps,
                sequence_steps=steps * series["llamacpp:n_busy_slots_per_decode"],
                context=context,
            )
        tokens = kv_tokens(page)
        used = series.get("vllm:kv_cache_usage_perc")
        return EngineCounters(
            prompt_tokens=_computed_tokens(page, series["vllm:prompt_tokens_total"]),
            prompt_s=series["vllm:request_prefill_time_seconds_sum"],
            gaps=series["vllm:inter_token_latency_seconds_count"],
            gap_s=series["vllm:inter_token_latency_seconds_sum"],
            steps=series["vllm:iteration_tokens_total_count"],
            sequence_steps=series["vllm:generation_tokens_total"],
            context=context if used is None or tokens is None else used * tokens,
            prompts=series["vllm:request_prefill_time_seconds_count"],
        )
    except KeyError as missing:
        raise NotCalibrated(f"needs the metrics of vLLM or llama.cpp; {missing.args[0]} is missing") from None


def _computed_tokens(page: Page, prompt_tokens: float) -> float:
    """Prompt tokens that no cache had: prefix caching takes no time. All of them, if the page does not say."""
    computed = [
        value
        for row, (name, value) in enumerate(zip(page.layout.names, page.values.tolist(), strict=True))
        if name == "vllm:prompt_tokens_by_source_total" and page.layout.labels(row).get("source") == "local_compute"
    ]
    return sum(computed) if computed else prompt_tokens


def kv_tokens(page: Page) -> float | None:
    """Tokens for which vLLM's KV cache has room; None if the page does not say."""
    for row, name in enumerate(page.layout.names):
        if name == "vllm:cache_config_info":
            labels = page.layout.labels(row)
            blocks, size = labels.get("num_gpu_blocks", ""), labels.get("block_size", "")
            if blocks.isdigit() and size.isdigit():
                return float(blocks) * float(size)
    return None


def calibrate(reads: Sequence[EngineCounters]) -> Calibrated:
    """The profile of the engine. reads: in the order of time. Raises NotCalibrated."""
    windows = np.array([_window(before, after) for before, after in pairwise(reads)]).reshape(-1, 7)
    has_prompts = (windows[:, 3] > 0.0) & (windows[:, 4] > 0.0)
    windows = windows[(windows[:, 0] >= LEAST_TOKENS) & has_prompts & (windows >= 0.0)[:, :5].all(axis=1)]
    if not len(windows):
        raise NotCalibrated(f"needs two reads with {LEAST_TOKENS:g} generated tokens between them, and prompts")
    tokens, gap_s, sequences, prompt_tokens, prompt_s, context, prompts = windows.T
    # Prompts of others that are read within a step: none if there is no other sequence.
    prompt_in_step = prompt_tokens * sequences / tokens * np.maximum(0.0, 1.0 - 1.0 / np.maximum(sequences, 1.0))
    fitted = np.zeros_like(gap_s)
    for _ in range(_ROUNDS):
        rate = _prompt_rate(sequences, prompt_tokens, np.maximum(prompt_s - prompts * fitted, 0.1 * prompt_s))
        decode_s = np.maximum(gap_s - prompt_in_step / rate, 0.1 * gap_s)
        step, per_sequence, per_token = _least_squares(decode_s, sequences, context, tokens)
        fitted = step + per_sequence * sequences + per_token * context
    error = float(np.average(np.abs(fitted - decode_s) / decode_s, weights=tokens))
    return Calibrated(step, per_sequence, per_token, rate, error, len(windows))


def _window(before: EngineCounters, after: EngineCounters) -> tuple[float, ...]:
    """(tokens, seconds between two, sequences per step, prompt tokens, seconds of prompts, context, prompts)."""
    change = EngineCounters(*(late - early for early, late in zip(before, after, strict=True)))
    if change.gaps <= 0.0 or change.steps <= 0.0:
        return (0.0,) * 7
    return (
        change.gaps,
        change.gap_s / change.gaps,
        change.sequence_steps / change.steps,
        change.prompt_tokens,
        change.prompt_s,
        0.0 if isnan(after.context) else after.context,
        change.prompts,
    )


def _prompt_rate(sequences: Floats, tokens: Floats, seconds: Floats) -> float:
    order = np.argsort(sequences, kind="stable")
    read = np.cumsum(tokens[order])
    enough = int(np.searchsorted(read, _PROMPT_SHARE * read[-1])) + 1
    chosen = order[:enough]
    return float(tokens[chosen].sum() / seconds[chosen].sum())


def _least_squares(decode_s: Floats, sequences: Floats, context: Floats, tokens: Floats) -> tuple[float, float, float]:
    """(step, per_sequence, per_token): the smallest relative error, weighted by tokens, with no value below 0."""
    terms = np.stack([np.ones_like(decode_s), sequences, context], axis=1)
    scale = np.maximum(terms.max(axis=0), 1e-12)
    weights = np.sqrt(tokens) / decode_s
    best, least = np.array([float(np.average(decode_s, weights=tokens)), 0.0, 0.0]), np.inf
    # With the fewest terms first: another term must earn its place by a tenth.
    for count in (0, 1, 2):
        for more in combinations((1, 2), count):
            columns = [0, *more]
            if len(columns) > len(decode_s) or any(np.ptp(terms[:, column]) <= 0.0 for column in more):
                continue
            matrix = terms[:, columns] / scale[columns]
            found, *_ = np.linalg.lstsq(matrix * weights[:, None], decode_s * weights, rcond=None)
            loss = float((((matrix @ found - decode_s) * weights) ** 2).sum())
            if (found >= 0.0).all() and found[0] > 0.0 and loss < 0.9 * least:
                best, least = np.zeros(3), loss
                best[columns] = found / scale[columns]
    step, per_sequence, per_token = best.tolist()
    return step, per_sequence, per_token


def profile_text(found: Calibrated, name: str, batch: int | None, kv: float | None) -> str:
    """The YAML that `--server` reads. What an engine's counters do not show is a default with a comment."""
    alone = found.step + found.per_sequence
    return "\n".join((
        f"# Fitted from {found.windows} windows; mean error of the time between two tokens {100 * found.error:.1f} %.",
        f"name: {name}",
        "start: 60s  # not measured: see the pod's events",
        "gpus: 1",
        "engine:",
        f"  step: {1000 * found.step:.4g}ms",
        f"  per_sequence: {1000 * found.per_sequence:.4g}ms",
        f"  per_token: {found.per_token:.4g}",
        f"  prompt_rate: {found.prompt_rate:.4g}",
        "  chunk: 2048" if batch is None or batch <= 2048 else f"  chunk: {batch}",  # noqa: PLR2004
        "  batch: 256  # not in the metrics" if batch is None else f"  batch: {batch}",
        f"  kv_tokens: {_NO_LIMIT:g}  # not in the metrics: no limit" if kv is None else f"  kv_tokens: {kv:g}",
        "slo:  # yours",
        "  first: 2s",
        f"  per_prompt_token: {2000 / found.prompt_rate:.4g}ms",
        "  rest: 500ms",
        f"  per_output_token: {3000 * alone:.4g}ms",
        "",
    ))  # fmt: skip
