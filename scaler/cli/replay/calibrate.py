"""Runs `tidegate replay --calibrate`: reads an engine at several times and prints its profile.

Worked example: `calibrated(["http://10.0.0.7:8000/metrics"], 12, 10.0)` reads it every 10 s for two minutes. Files are
pages that were saved one after the other.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from math import isnan
from typing import Any

import click

from exporter.textformat import Page, parse
from scaler.cli import client
from scaler.replay.calibration import EngineCounters, NotCalibrated, calibrate, engine_counters, kv_tokens, profile_text

READS, EVERY_S = 12, 10.0
_SAMPLES = 10  # of the context, per read
_TIMEOUT_S = 10.0
_NAME = "calibrated"


def calibrated(sources: Sequence[str], reads: int = READS, every_s: float = EVERY_S) -> str:
    """The profile as YAML. sources: one URL of an engine's metrics, or two files and more. Raises NotCalibrated."""
    if len(sources) == 1 and sources[0].startswith(("http://", "https://")):
        return _of_url(sources[0], reads, every_s)
    if len(sources) < 2:  # noqa: PLR2004
        raise NotCalibrated("needs one URL, or two files and more")
    pages = [_page(source) for source in sources]
    counters = [_counters(page, source) for page, source in zip(pages, sources, strict=True)]
    return profile_text(calibrate(counters), _NAME, None, kv_tokens(pages[-1]))


def print_profile(sources: Sequence[str]) -> None:
    """Raises ClickException."""
    try:
        click.echo(calibrated(sources), nl=False)
    except NotCalibrated as error:
        raise click.ClickException(f"--calibrate: {error}") from None


def _of_url(url: str, reads: int, every_s: float, sleep: Callable[[float], None] = time.sleep) -> str:
    slots_url = f"{url.rpartition('/')[0]}/slots"
    page, slots = _page(url), _slots(slots_url)
    counters = [_counters(page, url)]
    for _ in range(reads - 1):
        contexts = []
        for _ in range(_SAMPLES):
            sleep(every_s / _SAMPLES)
            contexts.append(context_of(_slots(slots_url)) if slots else float("nan"))
        page = _page(url)
        counters.append(_counters(page, url, _mean_of_busy(contexts)))
    return profile_text(calibrate(counters), _NAME, len(slots) or None, kv_tokens(page) or kv_of(slots))


def _page(source: str) -> Page:
    try:
        return parse(client.page(source, _TIMEOUT_S))
    except client.Unanswered as error:
        raise NotCalibrated(str(error)) from error


def _counters(page: Page, source: str, context: float = float("nan")) -> EngineCounters:
    try:
        return engine_counters(page, context)
    except NotCalibrated as error:
        raise NotCalibrated(f"{source}: {error}") from None


def _slots(url: str) -> list[dict[str, Any]]:
    """llama.cpp's slots; empty of another engine, or with `--no-slots`."""
    try:
        document = json.loads(client.page(url, _TIMEOUT_S))
    except (client.Unanswered, ValueError, RecursionError):
        return []
    return [slot for slot in document if isinstance(slot, dict)] if isinstance(document, list) else []


def context_of(slots: Sequence[dict[str, Any]]) -> float:
    """Tokens of all sequences in progress. NaN if there is none."""
    tokens = [float(slot.get("n_prompt_tokens", 0)) for slot in slots if slot.get("is_processing")]
    return sum(tokens) if tokens else float("nan")


def kv_of(slots: Sequence[dict[str, Any]]) -> float | None:
    return sum(float(slot.get("n_ctx", 0)) for slot in slots) or None


def _mean_of_busy(contexts: Sequence[float]) -> float:
    busy = [context for context in contexts if not isnan(context)]
    return sum(busy) / len(busy) if busy else float("nan")
