"""Advice joins a profile, a config.json and the table of GPUs; what it cannot know, it leaves out and says so."""

import json
import re
from importlib import resources
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import WorkloadKey
from scaler.policy.prices import PriceList
from scaler.report import advice
from scaler.report.architecture import parse
from scaler.report.gpus import parse as parse_gpus
from scaler.report.mig import find
from scaler.report.profile import OperatingPoint, Profile, of_document, operating_points
from scaler.report.work import GpuSplit, StepLoad, decode_work
from scaler.signals.usage import Usage
from tests.scaler.report.conftest import make

CONFIGS = json.loads((Path(__file__).parent / "configs.json").read_text())
LLAMA = parse(CONFIGS["grouped-query"])  # Llama 3.1 8B in bfloat16
MODELS = parse_gpus(resources.files("scaler.report").joinpath("gpus.yaml").read_text(), "gpus.yaml")
GIB = 2.0**30
A100 = find("A100-40GB")
ON_H100 = advice.Deployment(LLAMA, "NVIDIA H100 80GB HBM3", objective=0.012)


def cells(section):
    return {row[0]: dict(zip(section.columns, row, strict=True)) for row in section.rows}


def point(batch, fixed=0.003, share=0.9):
    """A point of a workload whose step takes `fixed` and its bytes at `share` of the bandwidth of an H100."""
    work = decode_work(advice.model_shape(LLAMA), StepLoad(batch, 1000.0, 200.0), GpuSplit())
    return OperatingPoint(batch, 1000.0, 200.0, fixed + work.bytes / (share * 3.35e12))


def profiled(*batches):
    """A profile whose means are those of the middle batch."""
    now = point(batches[len(batches) // 2])
    rate = now.batch / now.step_s
    signals = make(
        RUNNING=now.batch, RUNNING_ALL=now.batch, GENERATED=rate, REQUESTS=rate / 200.0, PROMPT=rate * 5.0, ENGINE=0.9
    )
    return Profile(signals.workload, signals.usage, signals.seconds, points=tuple(map(point, batches)))


def test_memory_of_a_model_is_listed_by_what_fits_and_costs_least():
    found = advice.memory_section(advice.Deployment(LLAMA), MODELS, PriceList({"H100": 1.0}, 9.0))
    shown = cells(found)
    assert found.rows[0][0].startswith("H100")
    assert shown["T4"]["left for KV"] == "does not fit"
    assert shown["T4"]["KV tokens"] == "\N{EN DASH}"
    assert [row[4] for row in found.rows[-2:]] == ["does not fit"] * 2
    assert "a token takes 131,072 bytes" in found.note


def test_two_gpus_hold_half_of_the_weights_each():
    one, two = (
        cells(advice.memory_section(advice.Deployment(LLAMA, tensor_parallel=count), MODELS, PriceList()))["L4"]
        for count in (1, 2)
    )
    assert (one["weights"], two["weights"]) == ("15.0", "7.5")
    assert (one["price per hour"], two["price per hour"]) == ("0.80", "1.60")


def test_band_of_another_gpu_holds_the_time_that_its_bandwidth_gives():
    """At 16 requests: 3 ms fixed, and 16.06 GB of weights and 2.3 GB of KV cache at 0.9 of 3.35 TB/s."""
    found = advice.gpu_section(profiled(1, 4, 16, 32, 64), ON_H100, MODELS, PriceList())
    assert "The time to the first token is not known" in found.note
    shown = cells(found)
    here = float(shown["H100 80GB HBM3 (now)"]["ms per token"])
    assert here == pytest.approx(1000.0 * point(16).step_s, abs=0.1)
    there, low, high = map(float, re.findall(r"[0-9.]+", shown["H200"]["ms per token"]))
    assert low < 3.0 + (here - 3.0) * 3.35 / 4.8 < high
    assert low < there < here
    assert shown["H200"]["SLO"] == "met"
    assert shown["L4"]["ms per token"] == "\N{EN DASH}"
    assert "no error band" in shown["L4"]["evidence"]


def test_gpu_without_a_history_is_not_known_but_the_present_one_is():
    shown = cells(advice.gpu_section(profiled(16), ON_H100, MODELS, PriceList()))
    assert shown["H200"]["ms per token"] == "\N{EN DASH}"
    assert "the history has 1 usable points" in shown["H200"]["evidence"]
    assert shown["H100 80GB HBM3 (now)"]["replicas"] == "2"  # one is full, and a fifth stays free


def test_workload_without_token_counters_gets_no_ranking():
    found = advice.gpu_section(make(ENGINE=0.9), ON_H100, MODELS, PriceList())
    assert not found.rows
    assert "must be counted" in found.note


def test_needed_memory_is_the_model_and_the_cache_of_its_requests():
    """The memory that the engine holds has no effect: vLLM takes 90 % of any GPU."""
    profile = profiled(4, 16, 64)
    more = Profile(profile.workload, {**profile.usage, **make(MEMORY=75 * GIB).usage}, profile.seconds)
    needed = advice.needed_bytes(ON_H100, profile)
    assert needed == advice.needed_bytes(ON_H100, more)
    weights = 8_030_261_248 * 2
    assert needed - weights == pytest.approx(16 * 1200 * 131_072 + 2.14 * GIB, rel=0.01)


def test_slices_follow_from_the_activity_on_a_whole_gpu():
    light = make(ENGINE=0.3, SM=0.2, DRAM=0.1, MEMORY=4 * GIB, MEMORY_TOTAL=40 * GIB)
    other = Profile(WorkloadKey("ai", "embed"), light.usage, light.seconds)
    found = advice.slice_section([light, other], A100)
    speeds = {(row[0], row[1]): row[3] for row in found.rows}
    assert speeds["ai/chat", "7g.40gb"] == "1.00"
    assert "Best partition of one GPU: ai/chat on 4g.20gb, ai/embed on 3g.20gb" in found.note
    assert "Verdict: slice" in found.note


def test_activity_on_a_slice_predicts_no_other_slice():
    on_slice = make(ENGINE=0.3, SM=0.2, DRAM=0.1, MEMORY=4 * GIB, MEMORY_TOTAL=19.5 * GIB)
    found = advice.slice_section([on_slice], A100)
    assert {row[4] for row in found.rows if row[1] != "7g.40gb"} == {"not known"}


def moments(*rows):
    """rows: batch, requests, prompt and generated tokens per second."""
    values = np.full((len(rows), len(Usage)), np.nan)
    for row, (batch, requests, prompt, generated) in zip(values, rows, strict=True):
        row[[Usage.RUNNING, Usage.RUNNING_ALL]] = batch
        row[[Usage.REQUESTS, Usage.PROMPT, Usage.GENERATED]] = requests, prompt, generated
    return values


def test_operating_points_are_ratios_of_sums():
    """Two requests at 100 tokens per second: 20 ms between two tokens of one of them."""
    assert operating_points(moments((2.0, 0.5, 500.0, 100.0))) == (OperatingPoint(2.0, 1000.0, 200.0, 0.02),)
    assert operating_points(moments((0.0, 0.0, 0.0, 0.0), (2.0, np.nan, 1.0, 1.0))) == ()


@given(st.lists(st.tuples(*[st.floats(0.1, 1e4)] * 4), max_size=40), st.randoms(use_true_random=False))
def test_operating_points_rise_in_batch_whatever_the_order(rows, random):
    shuffled = random.sample(rows, len(rows))
    found = operating_points(moments(*rows))
    assert len(found) == min(len(rows), 8)
    assert all(one.batch <= other.batch + 1e-9 for one, other in pairwise(found))
    batches = [each.batch for each in operating_points(moments(*shuffled))]
    assert batches == pytest.approx([each.batch for each in found])


def test_document_of_a_profile_keeps_its_operating_points():
    profile = profiled(1, 4, 16)
    assert of_document(json.loads(json.dumps(profile.to_document()))).points == profile.points
