"""A profile is the same from histograms, from a history and from its document, and leaves out what is unknown."""

import json
import textwrap

import numpy as np
import pytest

from exporter.catalog import Reader
from exporter.model import PodKey, WorkloadKey
from exporter.textformat import parse
from scaler.report.binding import Verdict, judge
from scaler.report.profile import ColdStartSeconds, of_document, of_histograms, of_moments, pods_of, usage_at
from scaler.signals.usage import Usage, UsageHistograms

CHAT = WorkloadKey("ai", "chat")
MINE = PodKey("ai", "chat-0")


def samples(text, kind="auto"):
    return Reader(kind).read(parse(textwrap.dedent(text).lstrip("\n").encode()), 1000.0)


DCGM = """
    DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="GPU-1",namespace="ai",pod="chat-0"} 0.97
    DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{UUID="GPU-1",namespace="ai",pod="chat-0"} 0.12
    DCGM_FI_PROF_DRAM_ACTIVE{UUID="GPU-1",namespace="ai",pod="chat-0"} 0.71
    DCGM_FI_DEV_FB_USED{UUID="GPU-1",namespace="ai",pod="chat-0"} 71680
    DCGM_FI_DEV_FB_FREE{UUID="GPU-1",namespace="ai",pod="chat-0"} 9240
    DCGM_FI_DEV_FB_RESERVED{UUID="GPU-1",namespace="ai",pod="chat-0"} 1000
    DCGM_FI_DEV_POWER_USAGE{UUID="GPU-1",namespace="ai",pod="chat-0"} 520
    DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="GPU-2",namespace="ai",pod="other-0"} 0.01
    """
VLLM = """
    vllm:num_requests_running{model_name="m"} 24
    vllm:num_requests_waiting{model_name="m"} 2
    vllm:kv_cache_usage_perc{model_name="m"} 0.6
    """


def one_moment(*pages, pod=MINE):
    read = [samples(page) for page in pages]
    engines = [each for each in read if each.kind == "vllm"]
    return of_moments(CHAT, [usage_at(engines, read, lambda each: each == pod)], 60.0, 1000.0)


def test_recorded_responses_make_a_profile_and_a_verdict():
    profile = one_moment(DCGM, VLLM)
    expected = {Usage.ENGINE: 0.97, Usage.DRAM: 0.71, Usage.POWER: 520.0, Usage.RUNNING: 24.0, Usage.WAITING: 2.0}
    assert {usage: profile.of(usage).busy_mean for usage in expected} == pytest.approx(expected)
    assert profile.of(Usage.MEMORY_TOTAL).mean == 81920 * 2**20
    assert judge(profile).verdict is Verdict.UNDERSIZED
    assert [str(each.verdict) for each in judge(profile).also] == ["memory_bandwidth"]


def test_gpu_of_another_pod_and_a_shared_one_are_left_out():
    shared = DCGM + '    DCGM_FI_PROF_DRAM_ACTIVE{UUID="GPU-1",namespace="ai",pod="other-0"} 0.71\n'
    assert one_moment(shared).usage == {}
    assert one_moment(DCGM, pod=PodKey("ai", "other-0")).of(Usage.ENGINE).mean == 0.01
    assert pods_of([samples(DCGM)]) == [MINE, PodKey("ai", "other-0")]


def test_mig_instances_weigh_by_their_slices():
    page = """
        DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="G",GPU_I_ID="1",GPU_I_PROFILE="3g.40gb",namespace="ai",pod="chat-0"} 0.3
        DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="G",GPU_I_ID="2",GPU_I_PROFILE="1g.10gb",namespace="ai",pod="chat-0"} 1.0
        """
    profile = one_moment(page)
    assert profile.of(Usage.ENGINE).mean == pytest.approx((3 * 0.3 + 1.0) / 4)
    assert profile.of(Usage.CEILING).mean == pytest.approx((3 * (1 / 3) + 1.0) / 4)


def test_engine_that_does_not_expose_its_queue_makes_the_sum_unknown():
    blind = 'vllm:num_requests_running{model_name="m"} 24\n'
    profile = one_moment(VLLM, blind)
    assert profile.of(Usage.WAITING).seconds == 0.0
    assert profile.of(Usage.RUNNING_ALL).mean == 48.0


def test_times_in_queue_and_service_follow_from_littles_law():
    usage = UsageHistograms(1)
    values = np.full((4, len(Usage)), np.nan)
    values[:, Usage.WAITING], values[:, Usage.RUNNING_ALL], values[:, Usage.REQUESTS] = 3.0, 12.0, 1.5
    usage.add_series(values, np.ones(4), 60.0, 1000.0)
    profile = of_histograms(CHAT, usage, 0, ColdStartSeconds(30.0, 45.0))
    assert (profile.queue_s, profile.service_s) == (2.0, 8.0)


def test_document_and_back_is_the_same_profile():
    profile = one_moment(DCGM, VLLM)
    text = json.dumps(profile.to_document(), allow_nan=False)
    assert of_document(json.loads(text)).to_document() == profile.to_document()


def test_quantity_of_a_newer_version_is_left_out():
    document = one_moment(DCGM).to_document()
    document["usage"]["gpu_dreams_active"] = document["usage"]["gpu_dram_active"]
    assert of_document(document).to_document() == one_moment(DCGM).to_document()


def test_nothing_measured_is_an_empty_profile_with_nulls():
    document = of_histograms(CHAT, UsageHistograms(1), 0).to_document()
    assert (document["usage"], document["busy_ratio"], document["queue_seconds"], document["since"]) == (
        {},
        None,
        None,
        None,
    )


def test_operating_points_of_histograms_are_those_of_a_history():
    """An engine at 2, 8, 32 and 64 requests, an hour each: the time between two tokens grows with the batch."""
    moments, usage = [], UsageHistograms(1)
    usage.add(np.full((1, len(Usage)), np.nan), np.array([np.nan]), 0.0, 60.0)
    for number, batch in enumerate((2.0, 8.0, 32.0, 64.0)):
        values = np.full(len(Usage), np.nan)
        values[[Usage.RUNNING, Usage.RUNNING_ALL]] = batch
        values[Usage.GENERATED] = batch / (0.01 + 0.0005 * batch)
        values[[Usage.REQUESTS, Usage.PROMPT]] = values[Usage.GENERATED] / 200.0, values[Usage.GENERATED] * 2.0
        moments += [values] * 60
        for minute in range(60):
            usage.add(values[None], np.array([1.0]), 60.0 * (60 * number + minute + 1), 60.0)
    history = of_moments(CHAT, moments, 60.0, 14_400.0).points
    found = of_histograms(CHAT, usage, 0).points
    assert [each.batch for each in found] == pytest.approx([2.0, 8.0, 32.0, 64.0], rel=1e-5)
    assert [each.step_s for each in found] == pytest.approx([0.011, 0.014, 0.026, 0.042], rel=1e-4)
    assert [tuple(each) for each in found] == [pytest.approx(tuple(each), rel=1e-4) for each in history[::2]]
