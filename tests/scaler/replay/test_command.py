"""Tests the arguments of `tidegate replay`: an invalid one is reported before anything is simulated."""

from __future__ import annotations

import pytest

from scaler.cli.replay.run import (
    MOST_REPLICAS,
    USUAL,
    BadReplayRequest,
    HistoryOptions,
    ReplayRequest,
    policies,
    replayed,
)
from scaler.config import ConfigErrors
from scaler.replay.ablations import PARTS
from scaler.replay.policies import FAMILIES

LOAD = "each:5m,for=30m"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (ReplayRequest([]), ["TRACE: must be given"]),
        (ReplayRequest(["nothing.csv"]), ["nothing.csv: is no file", "diurnal"]),
        (ReplayRequest(["diurnl:high=4"]), ["diurnl", "did you mean diurnal"]),
        (ReplayRequest(["diurnal:hihg=4"]), ["diurnal:hihg=4", "must be key=value of low, high", "did you mean high"]),
        (ReplayRequest([LOAD], form="xls"), ["--format: must be one of csv", "got xls"]),
        (ReplayRequest([LOAD], seed=-1), ["--seed: must be 0 or more, got -1"]),
        (ReplayRequest([LOAD], policies=["keda"]), ["--policy keda", "there is no policy 'keda'", "keda-waiting"]),
        (ReplayRequest([LOAD], policies=["static:4"]), ["--policy static:4", "'4' should be key=value", "replicas="]),
        (ReplayRequest([LOAD], policies=["static:size=4"]), ["static has no 'size'", "it has replicas"]),
        (ReplayRequest([LOAD], policies=["ray:min=two"]), ["min must be a whole number, got 'two'"]),
        (ReplayRequest([LOAD], policies=["tidegate:work=-1"]), ["work must be at least 0, got -1"]),
        (ReplayRequest([LOAD], policies=["tidegate:lost=2"]), ["lost must be at most 1, got 2"]),
        (ReplayRequest([LOAD], policies=["hpa-kv:behavior=odd"]), ["behavior must be one of none, default, got 'odd'"]),
        (ReplayRequest([LOAD], policies=["tidegate:min=9,max=3"]), ["min=9 is more than max=3"]),
        (
            ReplayRequest([LOAD], policies=["tidegate:without=all"]),
            ["without must be one of nothing, noise, lead, headroom"],
        ),
        (ReplayRequest([LOAD], policies=["knative"], ablation=True), ["--ablation: needs --policy tidegate"]),
        (ReplayRequest([LOAD], policies=["static:replicas=600"]), ["replicas must be at most 512, got 600"]),
        (
            ReplayRequest([], history=HistoryOptions("http://127.0.0.1:1", None, "1d", None)),
            ["--workload: must be NAMESPACE/NAME"],
        ),
        (
            ReplayRequest([], history=HistoryOptions("http://127.0.0.1:1", "chat", "1d", None)),
            ["--workload", "got chat"],
        ),
        (
            ReplayRequest([], history=HistoryOptions("http://127.0.0.1:1", "ai/chat", "soon", None)),
            ["--since: must be a duration"],
        ),
        (
            ReplayRequest([], history=HistoryOptions("http://me:secret@127.0.0.1:1", "ai/chat", "1d", None, "/token")),
            ["--bearer-file: must not be given"],
        ),
        (ReplayRequest([], history=HistoryOptions("nonsense", "ai/chat", "1d", None)), ["--prometheus: nonsense"]),
        (
            ReplayRequest([], history=HistoryOptions("http://127.0.0.1:1", "ai/chat", "1d", None)),
            ["--prometheus: http://127.0.0.1:1"],
        ),
    ],
)
def test_invalid_argument_is_named_with_the_valid_form(request_, expected):
    with pytest.raises(BadReplayRequest) as bad:
        replayed(request_)

    assert [part for part in expected if part not in str(bad.value)] == [], str(bad.value)


def test_invalid_server_file_is_reported_with_line_and_column(tmp_path):
    file = tmp_path / "server.yaml"
    file.write_text(
        "name: mine\nstart: 40s\nengine: {step: 16ms, prompt_rate: -1, kv_tokens: 190000}\nslo: {first: 2s}\n"
    )
    with pytest.raises(ConfigErrors) as errors:
        replayed(ReplayRequest([LOAD], server=str(file)))

    (problem,) = errors.value.problems
    assert str(problem).startswith(f"{file}:3:")
    assert "prompt_rate" in str(problem)


def test_questionable_server_file_is_reported_and_replayed(tmp_path):
    file, progress = tmp_path / "server.yaml", []
    file.write_text(
        "name: mine\nstart: 40s\nengine: {step: 16ms, prompt_rate: 7000, kv_tokens: 190000}\nslo: {first: 2s}\n"
    )
    (verdict,) = replayed(ReplayRequest([LOAD], server=str(file), policies=["static:replicas=1"]), progress.append)

    assert (verdict.profile.name, len(progress)) == ("mine", 1)
    assert progress[0].startswith(f"{file}:4:")
    assert "slo.per_prompt_token: should be at least 1/prompt_rate (0.143 ms)" in progress[0]


def test_usual_policies_are_replayed_in_order_on_profile_a_by_default(capsys):
    (verdict,) = replayed(ReplayRequest([LOAD]))
    captured = capsys.readouterr()

    assert tuple(one.name for one in verdict.played) == USUAL
    assert (verdict.profile.name, verdict.plan) == ("A", None)
    assert captured.out == "", "progress goes to standard error"


def test_ablation_replays_the_default_and_then_without_each_part():
    (verdict,) = replayed(ReplayRequest([LOAD], ablation=True))

    assert {one.name for one in verdict.played} == {"tidegate"}
    assert [one.label for one in verdict.played] == ["", *(f"without={part}" for part in PARTS)]


def test_ablation_leaves_other_policies_and_parameters_as_they_are():
    (verdict,) = replayed(ReplayRequest([LOAD], policies=["static:replicas=2", "tidegate:max=3"], ablation=True))

    assert (verdict.played[0].label, verdict.played[1].label) == ("replicas=2", "max=3")
    assert all(one.label.startswith("max=3") for one in verdict.played[1:])


def test_tuning_adds_the_cheapest_setting_of_the_grid_that_meets_the_slo(monkeypatch):
    tried = [one for one in USUAL if one == "keda-gpu-util"]
    monkeypatch.setattr("scaler.cli.replay.run.BASELINES", (*tried, "static"))
    (verdict,) = replayed(ReplayRequest(["each:1m,for=20m"], policies=["static:replicas=4"], tune=True))
    four, best = verdict.played

    assert best.name.startswith("hindsight: ")
    assert best.score.gpu_hours < four.score.gpu_hours
    assert best.score.slo_met_ratio >= 0.99


def test_list_has_every_policy_with_parameters_defaults_descriptions_and_tuned_values():
    listed = policies().splitlines()

    assert [name for name, family in FAMILIES.items() if f"{name}: {family.about}" not in listed] == []
    assert "    work=0  requests in hand per replica; 0: sized by the SLO of the server" in listed
    assert "    --tune: threshold 50, 65, 80, 95; behavior none, default" in listed
    assert len(listed) == sum(1 + len(family.parameters) + bool(family.grid) for family in FAMILIES.values())


def test_maximum_number_of_replicas_fits_the_simulator():
    (verdict,) = replayed(ReplayRequest(["each:5m,for=16m"], policies=[f"static:replicas={MOST_REPLICAS}"]))

    assert verdict.played[0].score.slo_met_ratio == 1.0
