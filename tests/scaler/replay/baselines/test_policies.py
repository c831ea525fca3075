"""Parses the policies of a replay, and the errors about invalid ones."""

from __future__ import annotations

import pickle

import pytest

from scaler.replay.policies import BASELINES, FAMILIES, grid, parse


@pytest.mark.parametrize("name", list(FAMILIES))
def test_every_family_builds_a_baseline_with_its_defaults_and_a_description(name):
    baseline = parse(name).baseline()
    assert baseline.name == ("static 1" if name == "static" else name)
    assert baseline.every_s > 0.0
    assert FAMILIES[name].about


def test_setting_is_named_by_its_values_that_are_not_default():
    assert parse("keda-waiting:threshold=10,min=1").name == "keda-waiting:threshold=10.0"
    assert parse(parse("ray:up=0,target=4").name) == parse("ray:target=4,up=0")


def test_values_are_passed_to_the_baseline(see):
    assert parse("static:replicas=7").baseline().first == 7
    assert parse("keda-waiting:min=3").baseline().first == 3
    assert parse("aibrix:target=0.1,max=3").baseline().step(see(0.0, wanted=2, kv=0.9)) == 3


def test_minimum_of_zero_starts_with_one_replica():
    assert parse("keda-waiting:min=0").baseline().first == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kpa", "there is no policy 'kpa'; there are tidegate, static, keda-waiting"),
        ("wva:queue", "'queue' should be key=value, such as kv="),
        ("ray:targt=3", "ray has no 'targt'; it has target, up"),
        ("ray:target=many", "target must be a number, got 'many'"),
        ("static:replicas=1.5", "replicas must be a whole number, got '1.5'"),
        ("ray:target=0", "target must be at least 0.001, got 0"),
        ("ray:target=inf", "target must be a finite number"),
        ("hpa-kv:min=0", "min must be at least 1, got 0"),
        ("hpa-kv:min=9,max=8", "min=9 is more than max=8"),
        ("keda-kv:behavior=fast", "behavior must be one of none, default, got 'fast'"),
    ],
)
def test_errors_name_the_key_the_bound_and_the_value(text, expected):
    with pytest.raises(ValueError, match="policy") as error:
        parse(text)
    assert expected in str(error.value)
    assert text in str(error.value)


def test_grid_has_about_350_different_settings_that_survive_a_round_trip():
    settings = grid(BASELINES)
    assert 330 <= len(settings) <= 370
    assert set(settings) < set(grid())
    assert len({setting.name for setting in settings}) == len(settings)
    assert [parse(setting.name) for setting in settings] == settings
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_each_call_builds_a_new_baseline():
    setting = parse("knative")
    assert setting.baseline() is not setting.baseline()


def first_scale_down(text, see):
    """The second at which the first of 4 replicas without work is removed."""
    baseline = parse(text).baseline()
    for look in range(200):
        now = baseline.every_s * look
        if baseline.step(see(now, wanted=4)) not in (None, 4):
            return now
    return None


def test_scale_down_window_is_the_configured_one(see):
    # The first value exists at 15 s; 4 was recommended at 0 s, and has left a window of 60 s after 60 s.
    assert first_scale_down("keda-waiting:behavior=default,down=60", see) == 60.0
    assert first_scale_down("keda-waiting:behavior=default", see) == 300.0
    assert first_scale_down("keda-waiting:down=60", see) == 75.0


def test_target_of_knative_is_seventy_percent_of_the_capacity_of_a_pod(see):
    # A pod of 148/0.7 has a capacity of 211.4, above the burst capacity of 211: the activator is not in the path, and
    # the grace of 30 s applies. One of 147/0.7 has 210: the activator is in the path, and no grace applies.
    gone = {}
    for target in (147, 148):
        baseline = parse(f"knative:target={target}").baseline()
        for tick in range(200):
            replicas = baseline.step(see(2.0 * tick, wanted=1, running=30.0 if tick < 60 else 0.0))
            if replicas == 0:
                gone[target] = 2.0 * tick
                break
    assert gone[148] == gone[147] + 30.0
