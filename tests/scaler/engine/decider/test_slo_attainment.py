"""Tests what the evidence says of the SLO of a workload: attainment and error budget, or why it is not measured."""

from __future__ import annotations

import numpy as np
import pytest

from scaler.engine.checkpoint_format import pack, unpack
from scaler.engine.decider import Decider
from scaler.explain.document import DecisionExplainer
from scaler.model import Board

SLO = (2.0, 0.06)


class Service:
    """Engines that serve steady traffic, of which a part is late."""

    def __init__(self, stage, page, engines):
        self.stage, self._page = stage, page
        self.served = dict.fromkeys(engines, 0.0)
        self.late = dict.fromkeys(engines, 0.0)
        self.buckets = ("ttft", "tpot")

    def pages(self, silent=()):
        return {engine: None if engine in silent else self._text(engine) for engine in self.served}

    def _text(self, engine):
        served, late = self.served[engine], self.late[engine]
        times = {
            "ttft": {"2.0": served - late, "5.0": served, "+Inf": served},
            "tpot": {"0.06": served, "+Inf": served},
        }
        return self._page.vllm(
            waiting=0, running=1, finished=served, tokens=200 * served, prompt=500 * served, first_tokens=served,
            gaps=199 * served, gap_seconds=4.0 * served, **{name: times[name] for name in self.buckets},
        )  # fmt: skip

    def run(self, seconds, late=0.0, silent=()):
        """Ten requests per second and engine, of which `late` (ratio) have a first token later than 2 s."""
        for _ in range(round(seconds / 5.0)):
            for engine in self.served:
                self.served[engine] += 50.0
                self.late[engine] += 50.0 * late
            self.stage.round(self.pages(silent))

    @property
    def evidence(self):
        return self.stage.decision().evidence


@pytest.fixture
def service(scene, plan, pod, page):
    """`service(engines=2)`: a workload with an SLO, on so many engines."""

    def make(engines=1, **spec):
        stage = scene(plan(**({"slo": SLO, "maximum": 50} | spec)))
        pods = [pod(number) for number in range(engines)]
        stage.has(pods=pods, wanted=engines)
        return Service(stage, page, pods)

    return make


def restored(chat, plan):
    """The same service after a restart with the state at the end."""
    stage = chat.stage
    state = unpack(pack(stage.decider.state(stage.now)))
    stage.now += 10.0
    stage.decider = Decider([plan], interval_s=5.0, fresh_intervals=3.0)
    stage.decider.restore(state, stage.now)
    stage.decisions = {}
    return chat


def test_part_of_the_requests_that_met_the_slo_and_what_is_left_of_the_error_budget(service):
    chat = service(engines=2)
    chat.run(600, late=0.004)
    evidence = chat.evidence
    assert evidence.slo_attainment == pytest.approx(0.996, abs=1e-4)
    assert evidence.slo_error_budget == pytest.approx(0.6, abs=0.01)
    assert evidence.slo_attainment_least <= evidence.slo_attainment <= evidence.slo_attainment_most
    assert evidence.slo_attainment_hour == pytest.approx(evidence.slo_attainment)
    assert evidence.slo_requests_total == pytest.approx(20.0 * 590.0, rel=0.02)
    assert evidence.slo_misses_total == pytest.approx(0.004 * evidence.slo_requests_total)
    assert evidence.slo == (
        "99.6 % of the requests of the last 3 days met the SLO: ttft 2s, itl 60ms; 60 % of the error budget is left"
    )
    assert evidence.request_replica_s > 0.0


def test_explanation_of_now_has_the_sentence_and_that_of_the_past_does_not(service):
    chat = service()
    chat.run(600, late=0.004)
    stage = chat.stage
    board = Board(1, stage.now, {stage.decision().workload: stage.decision()})
    explainer = DecisionExplainer(stage.decider)

    def sentences(at):
        document = explainer.explain(stage.decision().workload, board, stage.now, at, None, None)()
        (step,) = [step for step in document["chain"] if step["step"] == "objectives"]
        return [sentence for sentence in step["sentences"] if "3 days" in sentence]

    assert sentences(None) == [f"{chat.evidence.slo}."]
    assert sentences(stage.now - 60.0) == []


def test_more_misses_than_the_error_budget_allows_are_said_as_such(service):
    chat = service()
    chat.run(600, late=0.05)
    assert chat.evidence.slo.endswith("; 5.0 times the error budget is used")
    assert chat.evidence.slo_error_budget == pytest.approx(-4.0)


@pytest.mark.parametrize(
    ("buckets", "missing"),
    [
        (("tpot",), "near its ttft of 2s"),
        (("ttft",), "near its itl of 60ms"),
        ((), "near its ttft of 2s and near its itl of 60ms"),
    ],
)
def test_slo_of_an_engine_without_a_histogram_is_not_measured_and_never_met(service, buckets, missing):
    chat = service()
    chat.buckets = buckets
    chat.run(60, late=0.5)
    evidence = chat.evidence
    assert evidence.slo == f"the SLO is not measured: an engine exposes no histogram with a bucket {missing}"
    measured = (evidence.slo_attainment, evidence.slo_attainment_hour, evidence.slo_error_budget)
    assert (*measured, evidence.slo_requests_total, evidence.slo_misses_total) == (None,) * 5


def test_workload_without_requests_has_no_attainment(service, page, pod):
    chat = service()
    chat.stage.rounds(60, chat.pages())
    assert chat.evidence.slo == "no request of the last 3 days is measured against the SLO: ttft 2s, itl 60ms"
    assert chat.evidence.slo_attainment is None


def test_workload_without_an_slo_has_nothing_to_say_of_one(service):
    chat = service(slo=None)
    chat.run(60, late=0.5)
    assert (chat.evidence.slo, chat.evidence.slo_attainment, chat.evidence.request_replica_s) == (None, None, None)


def test_engine_that_stops_answering_neither_meets_nor_misses(service):
    chat = service(engines=3)
    chat.run(300, late=0.01)
    before = chat.evidence
    quiet, *_ = chat.served
    chat.run(60, late=0.01, silent=[quiet])
    assert chat.evidence.slo_attainment == pytest.approx(before.slo_attainment, abs=1e-3)
    assert chat.evidence.slo_requests_total >= before.slo_requests_total


def test_restart_keeps_the_window_and_its_totals(service, plan):
    chat = service()
    chat.run(600, late=0.02)
    before = chat.evidence
    restored(chat, plan(slo=SLO, maximum=50)).run(20)
    after = chat.evidence
    assert after.slo_attainment == pytest.approx(before.slo_attainment, abs=0.002)
    assert before.slo_requests_total <= after.slo_requests_total <= before.slo_requests_total + 20 * 10.0
    assert after.slo_misses_total >= before.slo_misses_total


def test_replica_that_follows_has_the_attainment_of_the_leader(service, plan):
    chat = service()
    chat.run(600, late=0.02)
    follower = Decider([plan(slo=SLO, maximum=50)], interval_s=5.0, fresh_intervals=3.0)
    follower.follow_state(chat.stage.decider.share(None, chat.stage.now), chat.stage.now)
    for name, mine in chat.stage.decider.columns().items():
        if name.startswith("attainment."):
            assert follower.columns()[name].tolist() == mine.tolist()


def test_state_of_another_version_costs_its_own_counts_alone(service, plan):
    chat = service()
    chat.run(300, late=0.02)
    columns = {name: column.copy() for name, column in chat.stage.decider.columns().items()}
    columns["attainment.hour"][:, 0, 0] = -5.0
    follower = Decider([plan(slo=SLO, maximum=50)], interval_s=5.0, fresh_intervals=3.0)
    rows = follower._everyone
    follower.take(columns, rows, rows)
    assert follower.columns()["attainment.totals"].tolist() == [[0.0, 0.0]]
    np.testing.assert_array_equal(follower.columns()["sizing.estimates"], columns["sizing.estimates"])


def test_other_slo_of_a_reload_counts_from_then_on_and_makes_no_burst_of_misses(service, plan):
    chat = service()
    chat.run(600, late=0.5)  # of 2 s; all have a first token within 5 s
    before = chat.evidence
    other = plan(slo=(5.0, 0.06), maximum=50)
    decider = chat.stage.decider
    decider.replan([other], decider._everyone, decider.of_plans(decider._everyone, [other]))
    chat.run(300, late=0.5)
    after = chat.evidence
    assert after.slo_misses_total == pytest.approx(before.slo_misses_total, rel=0.02)
    assert after.slo_requests_total == pytest.approx(before.slo_requests_total + 10.0 * 295.0, rel=0.03)
    assert "ttft 5s" in after.slo
