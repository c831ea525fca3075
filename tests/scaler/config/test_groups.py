"""Checks groups in a configuration: an error about two members names both."""

import pytest

from scaler.config.errors import ConfigErrors
from scaler.config.loader import parse

_GATEWAY = "gateway: {url: 'http://g:9090/metrics'}"


def _workload(name, keys="", more=_GATEWAY):
    return (
        f"  - {{namespace: ai, name: {name}, engine: vllm, pods: {{dns: {name}.ai.svc}}, group: pd, "
        f"{', '.join(part for part in (more, keys) if part)}}}"
    )


def check_workloads(*workloads):
    """Returns all errors and warnings, without their position in the file."""
    try:
        _, problems = parse("workloads:\n" + "\n".join(workloads), "c.yaml")
    except ConfigErrors as wrong:
        problems = wrong.problems
    return [f"{'warning: ' if each.severity == 'warning' else ''}{each.key}: {each.message}" for each in problems]


def test_prefill_decode_and_their_variants_form_a_group():
    decode = "role: decode, ratio: {to: prefill, min: 0.5, max: 3}"
    assert (
        check_workloads(
            _workload("p", "role: prefill"), _workload("d1", decode), _workload("d2", f"weight: 9, {decode}")
        )
        == []
    )


@pytest.mark.parametrize(("keys", "expected"), [
    ("role: a, ratio: {to: a}", "workloads.0.ratio.to: must be another role than the workload's, got a"),
    ("ratio: {to: b}", "workloads.0.ratio: goes with role, which is not given"),
    ("role: a, ratio: {to: b, min: 3, max: 2}", "workloads.0.ratio.min: must be at most ratio.max (2), got 3"),
    ("role: a, ratio: {min: 3}", "workloads.0.ratio.to: must be given"),
    ("weight: -1", "workloads.0.weight: must be at least 0, got -1"),
])  # fmt: skip
def test_member_with_an_invalid_group_key_is_an_error(keys, expected):
    assert expected in check_workloads(_workload("p", keys), _workload("d", "role: b"))


@pytest.mark.parametrize("key", ["role: a", "weight: 0.5", "ratio: {to: b}"])
def test_group_keys_without_a_group_are_an_error(key):
    alone = _workload("p", key).replace("group: pd, ", "")
    assert check_workloads(alone)[0] == f"workloads.0.{key.partition(':')[0]}: goes with group, which is not given"


PRICED = "order: price, gpu_hour: 0.8"


@pytest.mark.parametrize(("first", "second", "expected"), [
    (PRICED, PRICED, []),
    ("order: price", PRICED, [(
        "warning: workloads.0.order: price is never known: it needs gpu_hour, or GPUs that gpus or kubernetes show; "
        "so weight decides"
    )]),
    (PRICED, "order: 1", [
        "workloads.1.order: must be price for all members of a role or none: ai/p has price"
    ]),
    ("order: 2", PRICED, ["workloads.1.order: must be price for all members of a role or none: ai/p has 2"]),
    (f"role: x, {PRICED}", "role: y, order: 3", []),
    (PRICED, "order: dear", ["workloads.1.order: must be a whole number from 0 to 100, or price, got dear"]),
    (PRICED, "order: 101", ["workloads.1.order: must be a whole number from 0 to 100, or price, got 101"]),
    (PRICED, "order: true", ["workloads.1.order: must be a whole number from 0 to 100, or price, got true"]),
])  # fmt: skip
def test_order_is_by_price_for_a_whole_role_with_prices_that_can_be_known(first, second, expected):
    assert check_workloads(_workload("p", first), _workload("d", second)) == expected


def test_different_ratios_of_one_role_name_both_members():
    lines = check_workloads(
        _workload("p", "role: prefill"),
        _workload("d1", "role: decode, ratio: {to: prefill, max: 2}"),
        _workload("d2", "role: decode, ratio: {to: prefill, min: 1}"),
    )
    assert lines == ["workloads.2.ratio: must be that of ai/d1 for role decode: from 0 to 2 for each of prefill"]


def test_circular_ratios_name_all_members():
    lines = check_workloads(
        _workload("a", "role: x, ratio: {to: y, min: 2}"),
        _workload("b", "role: y, ratio: {to: z, min: 2}"),
        _workload("c", "role: z, ratio: {to: x, min: 2}"),
    )
    assert lines == ["workloads.2.ratio.to: must not close a circle: the ratios of ai/a, ai/b lead back to role z"]


@pytest.mark.parametrize(("workloads", "expected"), [
    ([_workload("a")], "workloads.0.group: has no other member in this namespace: a group of one is no group"),
    ([_workload("a", "weight: 0"), _workload("b", "weight: 0")],
     "workloads.1.weight: is 0 for every member of the group: they share the demand evenly, so that none is lost"),
    ([_workload("a", "role: x, ratio: {to: w}"), _workload("b", "role: y")],
     "workloads.0.ratio.to: is a role that no member of the group has"),
    ([_workload("a", "role: x", ""), _workload("b", "role: y, replicas: {min: 1}", "")],
     ("workloads.0.replicas: 0 without a gateway at any member of its group: nothing can wake it "
      "(reason no_wake_source)")),
])  # fmt: skip
def test_group_key_without_its_apparent_effect_is_a_warning(workloads, expected):
    assert check_workloads(*workloads) == [f"warning: {expected}"]


def test_one_gateway_is_enough_for_all_roles():
    assert check_workloads(_workload("a", "role: x"), _workload("b", "role: y", "")) == []


def test_workloads_on_one_queue_without_a_group_are_a_warning():
    alone = [_workload(name).replace("group: pd, ", "") for name in "ab"]
    (line,) = check_workloads(*alone)
    assert line.startswith("warning: workloads.1.gateway: shows the same queue as that of ai/a without")
    named = [_workload(name, f"model: {name}").replace("group: pd, ", "") for name in "ab"]
    assert check_workloads(*named) == []
