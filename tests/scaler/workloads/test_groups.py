"""Tests groups of triggers and annotations: group names within a namespace, and errors about contradicting members."""

from math import nan

import pytest

from scaler.policy.groups import BY_PRICE
from scaler.workloads.targets import Plans
from tests.scaler.workloads.objects import configured, deployment, errors, names, refusal, scaled, trigger

DECODE = {"engine": "vllm", "group": "pd", "role": "decode", "ratio__to": "prefill"}
PREFILL = {"engine": "vllm", "group": "pd", "role": "prefill", "gateway": "epp"}


def test_members_come_from_triggers_annotations_and_the_configuration(cluster):
    world = cluster(configured("p", group="pd", role="prefill"))
    registry = world.take(
        scaled("d", trigger(**DECODE, ratio__min="0.5"), minimum=1), deployment("e", engine="vllm", group="pd")
    )
    assert names(registry) == ["ai/p", "ai/d", "ai/e"]
    members = [plan.member for plan in Plans(world.config).take(registry.workloads)]
    assert [(each.namespace, each.name, each.role, each.to, each.least) for each in members] == [
        ("ai", "pd", "prefill", None, 0.0),
        ("ai", "pd", "decode", "prefill", 0.5),
        ("ai", "pd", "", None, 0.0),
    ]


def test_order_by_price_comes_from_triggers_and_annotations_with_the_requests_that_a_replica_holds(cluster):
    world, keys = cluster(), {"engine": "vllm", "gateway": "epp", "group": "chat", "order": "price"}
    registry = world.take(
        scaled("l4", trigger(**keys, objectives__work="8"), minimum=1), deployment("h100", **keys, gpu_hour="6.9")
    )
    plans = {plan.workload.name: plan for plan in Plans(world.config).take(registry.workloads)}
    members = [(plans[name].member.order, plans[name].member.holds) for name in ("l4", "h100")]
    assert members == [(BY_PRICE, 8.0), (BY_PRICE, pytest.approx(nan, nan_ok=True))]
    mixed = world.take(scaled("l4", trigger(**keys), minimum=1), deployment("h100", **{**keys, "order": "2"}))
    bound = "must be price for all members of a role or none: ai/l4 has price"
    assert errors(mixed) == [f"ai/Deployment/h100: tidegate.dev/order: {bound}"]


def test_contradicting_member_has_no_workload_and_its_rejection_names_the_other(cluster):
    one, other = {**DECODE, "ratio__max": "2"}, {**DECODE, "ratio__max": "3"}
    registry = cluster().take(
        scaled("p", trigger(**PREFILL)), scaled("d1", trigger(**one)), scaled("d2", trigger(**other))
    )
    assert names(registry) == ["ai/d1", "ai/p"]
    bound = "must be that of ai/d1 for role decode: from 0 to 2 for each of prefill"
    assert errors(registry) == [f"ai/ScaledObject/d2: spec.triggers.0.metadata.ratio: {bound}"]
    metadata = {key.replace("__", "."): value for key, value in other.items()}
    assert refusal(registry, "d2", **metadata)[1] == f"metadata.ratio: {bound}"


def test_contradicting_annotations_name_the_other_member(cluster):
    world = cluster()
    registry = world.take(
        scaled("a", trigger(**PREFILL, ratio__to="decode", ratio__min="1")),
        deployment("b", **DECODE, ratio__min="1"),
    )
    assert names(registry) == ["ai/a"]
    (sentence,) = errors(registry)
    circle = "must not close a circle: the ratios of ai/a lead back to role decode"
    assert sentence == f"ai/Deployment/b: tidegate.dev/ratio.to: {circle}"


def test_contradiction_in_one_namespace_does_not_affect_another(cluster):
    other = scaled("d", trigger(**DECODE, ratio__max="3"), namespace="b")
    registry = cluster().take(scaled("d", trigger(**DECODE, ratio__max="2"), namespace="a"), other)
    assert (names(registry), errors(registry)) == (["a/d", "b/d"], [])
