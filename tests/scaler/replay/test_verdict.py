"""Tests the result of a replay: the document, and its table."""

from __future__ import annotations

import json
from dataclasses import replace
from math import nan

import numpy as np
import pytest
from rich.console import Console

from scaler.cli.replay.run import ReplayPlan, play
from scaler.cli.replay.tables import replay_tables
from scaler.replay.baseline import Static
from scaler.replay.clairvoyant import ClairvoyantPlan
from scaler.replay.policies import parse
from scaler.replay.report import Played, TraceResult, describe_slo
from scaler.replay.run import run
from scaler.replay.servers import A, C, ReplaySlo
from scaler.replay.traces import Recorded
from scaler.replay.traces import load as read

POLICY = [
    "name", "parameters", "slo_met_ratio", "gpu_hours", "ratio_to_clairvoyant", "ttft_mean_s", "ttft_p99_s", "changes",
    "flaps_per_day", "cold_starts", "asleep_gpu_hours", "late",
]  # fmt: skip


def played(seed=0, **wishes):
    policies = [parse("tidegate:work=8"), parse("static:replicas=2"), parse("keda-waiting")]
    recorded = read("flash:peak=6,at=2m,for=12m", None, 1)
    return play(
        ReplayPlan([recorded], replace(A, start_sigma=0.3), policies, seed=seed, **wishes), lambda _what, _done: None
    )


@pytest.fixture
def verdict(load):
    """Two policies without a scored request: the only request of the load never had a token."""

    def make(plan=None, notes=()):
        never = load([(0.0, 10, 10), (100.0, 10, 10)])
        one = Played("static", {"replicas": 0}, run(never, A, Static(0)))
        return TraceResult(never, A, [one], plan, 1.5, 2.5, notes)

    return make


def test_document_has_its_documented_shape():
    (document,) = [verdict.to_document() for verdict in played()]

    assert list(document)[:3] == ["load", "server", "slo"]
    assert (document["load"], document["server"]) == ("flash:peak=6,at=2m,for=12m", "A")
    assert [list(policy) for policy in document["policies"]] == [POLICY] * 3
    assert [policy["name"] for policy in document["policies"]] == ["tidegate", "static", "keda-waiting"]
    assert [policy["parameters"] for policy in document["policies"]] == [{"work": 8.0}, {"replicas": 2}, {}]
    assert all(set(policy["late"]) == {"wake", "cold_start", "starting", "too_few"} for policy in document["policies"])
    assert len(document["comparison"]) == 3
    assert document["gpu_hour"] == 2.5
    assert document["slo"] == {
        "share": 0.99, "first_token_s": 2.0, "first_token_s_per_prompt_token": 2 / 12_000, "rest_s": 0.5,
        "rest_s_per_token": 0.06,
    }  # fmt: skip


def test_same_seed_yields_the_same_bytes():
    one, again, other = (json.dumps([each.to_document() for each in played(seed)]) for seed in (4, 4, 5))

    assert one == again
    assert one != other


def test_unknown_value_is_null_and_never_zero(verdict):
    document = verdict().to_document()
    text = json.dumps(document, allow_nan=False)  # raises if any is left

    (policy,) = json.loads(text)["policies"]
    assert (policy["ttft_mean_s"], policy["ttft_p99_s"], policy["ratio_to_clairvoyant"]) == (None, None, None)
    assert policy["slo_met_ratio"] == 0.0
    assert document["clairvoyant"] is None
    assert (document["fluid_bound_gpu_hours"], document["gap_clairvoyant_gpu_hours"]) == (1.5, 2.5)
    assert TraceResult(verdict().load, C, [], None, 0.0, 0.0).to_document()["slo"]["rest_s"] is None


def test_gpu_hours_are_reported_as_a_ratio_to_the_plan(verdict):
    with_plan = verdict(ClairvoyantPlan(np.ones(4, np.int64), 2.0, 0.99))

    assert with_plan.ratio(3.0) == 1.5
    assert with_plan.to_document()["clairvoyant"] == {"gpu_hours": 2.0, "slo_met_ratio": 0.99}
    assert np.isnan(verdict(ClairvoyantPlan(np.zeros(4, np.int64), 0.0, nan)).ratio(3.0))


def test_plan_and_bounds_are_described(verdict):
    assert verdict().bounds() == (
        "gap-clairvoyant: at least 2.5 GPU-hours for a policy that starts on a request, even if it knows all gaps, "
        "without sleep mode. 1.5 GPU-hours are a lower bound: full batches, and starting is free."
    )
    progress = verdict(ClairvoyantPlan(np.ones(4, np.int64), 2.0, 0.9912)).bounds()
    assert "takes 2.0 GPU-hours and keeps 99.12 %" in progress
    assert "1.5 GPU-hours are a lower bound" in progress


def test_slo_is_described():
    assert describe_slo(A.slo) == (
        "99 % of requests: first token in 2 s + 0.17 s per 1,000 prompt tokens, the rest in 0.5 s + 60 ms per token"
    )
    assert describe_slo(ReplaySlo(1.0, 0.0, share=0.95)) == "95 % of requests: first token in 1 s"


def test_each_load_has_its_own_result_and_progress():
    progress = []
    loads = [read("each:1m,for=20m", None, 0), Recorded(read("each:2m,for=20m", None, 0).load, ("made up",))]
    one, two = play(
        ReplayPlan(loads, A, [parse("static:replicas=1")]), lambda what, done: progress.append((what, done))
    )

    assert (one.load.name, two.load.name) == ("each:1m,for=20m", "each:2m,for=20m")
    assert two.to_document()["notes"] == ["made up"]
    assert {what for what, _ in progress} == {"each:1m,for=20m: static", "each:2m,for=20m: static"}
    assert all(0.0 <= done <= 1.0 for _, done in progress)


def test_table_has_a_row_per_policy_and_dashes_for_unknown_values(verdict, tmp_path):
    with (tmp_path / "table").open("w+") as file:
        replay_tables([*played(), verdict(notes=["one row was bad"])], Console(file=file))
        file.seek(0)
        lines = file.read().splitlines()

    starts = [line.split("  ")[0].strip() for line in lines]
    assert [start for start in starts if start in ("tidegate work=8.0", "static replicas=2", "keda-waiting")] == [
        "tidegate work=8.0", "static replicas=2", "keda-waiting",
    ]  # fmt: skip
    assert "one row was bad" in starts
    assert any("0.00 %" in line and line.count("\N{EN DASH}") == 3 for line in lines)
