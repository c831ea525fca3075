"""What is said of groups before anything runs: of members that contradict each other both are named."""

import pytest

from scaler.config.errors import ConfigErrors
from scaler.config.loader import parse

_GATEWAY = "gateway: {url: 'http://g:9090/metrics'}"


def _workload(name, words="", more=_GATEWAY):
    return (
        f"  - {{namespace: ai, name: {name}, engine: vllm, pods: {{dns: {name}.ai.svc}}, group: pd, "
        f"{', '.join(part for part in (more, words) if part)}}}"
    )


def told(*workloads):
    """All that is said, without the place in the file."""
    try:
        _, problems = parse("workloads:\n" + "\n".join(workloads), "c.yaml")
    except ConfigErrors as wrong:
        problems = wrong.problems
    return [f"{'warning: ' if each.severity == 'warning' else ''}{each.key}: {each.message}" for each in problems]


def test_prefill_decode_and_variants_of_each_are_a_group():
    decode = "role: decode, ratio: {to: prefill, min: 0.5, max: 3}"
    assert told(_workload("p", "role: prefill"), _workload("d1", decode), _workload("d2", f"weight: 9, {decode}")) == []


@pytest.mark.parametrize(("words", "expected"), [
    ("role: a, ratio: {to: a}", "workloads.0.ratio.to: must be another role than the workload's, got a"),
    ("ratio: {to: b}", "workloads.0.ratio: goes with role, which is not given"),
    ("role: a, ratio: {to: b, min: 3, max: 2}", "workloads.0.ratio.min: must be at most ratio.max (2), got 3"),
    ("role: a, ratio: {min: 3}", "workloads.0.ratio.to: must be given"),
    ("weight: -1", "workloads.0.weight: must be at least 0, got -1"),
])  # fmt: skip
def test_words_of_one_member_that_cannot_be(words, expected):
    assert expected in told(_workload("p", words), _workload("d", "role: b"))


@pytest.mark.parametrize("word", ["role: a", "weight: 0.5", "ratio: {to: b}"])
def test_words_that_go_with_a_group_need_one(word):
    alone = _workload("p", word).replace("group: pd, ", "")
    assert told(alone)[0] == f"workloads.0.{word.partition(':')[0]}: goes with group, which is not given"


def test_two_bounds_of_one_role_name_both_members():
    said = told(
        _workload("p", "role: prefill"),
        _workload("d1", "role: decode, ratio: {to: prefill, max: 2}"),
        _workload("d2", "role: decode, ratio: {to: prefill, min: 1}"),
    )
    assert said == ["workloads.2.ratio: must be that of ai/d1 for role decode: from 0 to 2 for each of prefill"]


def test_bounds_in_a_circle_name_all_members_of_it():
    said = told(
        _workload("a", "role: x, ratio: {to: y, min: 2}"),
        _workload("b", "role: y, ratio: {to: z, min: 2}"),
        _workload("c", "role: z, ratio: {to: x, min: 2}"),
    )
    assert said == ["workloads.2.ratio.to: must not close a circle: the ratios of ai/a, ai/b lead back to role z"]


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
def test_what_works_otherwise_than_meant_is_a_warning(workloads, expected):
    assert told(*workloads) == [f"warning: {expected}"]


def test_where_one_member_has_a_gateway_the_others_of_other_roles_need_none():
    assert told(_workload("a", "role: x"), _workload("b", "role: y", "")) == []


def test_two_that_look_at_one_queue_without_a_group_count_it_twice_and_are_told():
    alone = [_workload(name).replace("group: pd, ", "") for name in "ab"]
    (said,) = told(*alone)
    assert said.startswith("warning: workloads.1.gateway: shows the same queue as that of ai/a without")
    named = [_workload(name, f"model: {name}").replace("group: pd, ", "") for name in "ab"]
    assert told(*named) == []
