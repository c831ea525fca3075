"""Recorded responses of targets at any times become moments with the rates of their own counters."""

import numpy as np
import pytest

from exporter.catalog import Reader
from exporter.textformat import parse
from scaler.report.recorded import SINGLE_S, RecordedPage, moments_of
from scaler.signals.usage import Usage

BEGIN = 1.7e9


def response(at, *, running=2, prompts=0):
    text = (
        f'vllm:num_requests_running{{model_name="m"}} {running}\nvllm:prompt_tokens_total{{model_name="m"}} {prompts}\n'
    )
    return RecordedPage(BEGIN + at, Reader("vllm").read(parse(text.encode()), BEGIN + at))


def gpu(at, active):
    text = f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{UUID="GPU-1",namespace="ai",pod="chat-0"}} {active}\n'
    return RecordedPage(BEGIN + at, Reader("dcgm").read(parse(text.encode()), BEGIN + at))


def everything(_):
    return True


def test_engines_with_times_of_their_own_are_added_up_and_each_has_its_own_rate():
    found = moments_of(
        {
            "a": [response(10.0 * n, prompts=100 * n) for n in range(7)],
            "b": [response(10.0 * n + 4.0, running=3, prompts=50 * n) for n in range(7)],
            "node": [gpu(10.0 * n + 1.0, 0.5) for n in range(7)],
        },
        everything,
    )
    assert (found.step_s, found.since, found.until) == (10.0, BEGIN, BEGIN + 64.0)
    middle = found.values[3]
    assert middle[[Usage.RUNNING_ALL, Usage.RUNNING, Usage.PROMPT, Usage.ENGINE]] == pytest.approx(
        [5.0, 2.5, 15.0, 0.5]
    )


def test_irregular_times_do_not_change_the_rate_and_a_restart_counts_from_zero():
    times = [0.0, 10.0, 18.0, 31.0, 40.0]
    pages = [response(at, prompts=at * 7.0) for at in times]
    found = moments_of({"a": [*pages, response(50.0, prompts=20.0)]}, everything)
    assert [values[Usage.PROMPT] for values in found.values[1:]] == pytest.approx([7.0, 7.0, 7.0, 7.0, 2.0])


def test_target_that_is_no_longer_recorded_drops_out_after_a_few_steps():
    long, short = ([response(10.0 * n) for n in range(length)] for length in (20, 5))
    found = moments_of({"a": long, "b": short}, everything)
    running = [values[Usage.RUNNING_ALL] for values in found.values]
    assert running == [4.0] * 7 + [2.0] * 13


def test_one_response_is_one_moment_without_rates():
    found = moments_of({"a": [response(0.0)]}, everything)
    assert (len(found.values), found.step_s) == (1, SINGLE_S)
    assert np.isnan(found.values[0][Usage.PROMPT])
