"""Groups of triggers and annotations: names of one namespace, and who is at fault where members contradict."""

from scaler.workloads.targets import plans
from tests.scaler.workloads.objects import configured, deployment, names, refusal, said, scaled, trigger

DECODE = {"engine": "vllm", "group": "pd", "role": "decode", "ratio__to": "prefill"}
PREFILL = {"engine": "vllm", "group": "pd", "role": "prefill", "gateway": "epp"}


def test_members_come_from_triggers_annotations_and_the_configuration_alike(cluster):
    world = cluster(configured("p", group="pd", role="prefill"))
    census = world.take(
        scaled("d", trigger(**DECODE, ratio__min="0.5"), minimum=1), deployment("e", engine="vllm", group="pd")
    )
    assert names(census) == ["ai/p", "ai/d", "ai/e"]
    members = [plan.member for plan in plans(world.config, census.workloads)]
    assert [(each.namespace, each.name, each.role, each.to, each.least) for each in members] == [
        ("ai", "pd", "prefill", None, 0.0),
        ("ai", "pd", "decode", "prefill", 0.5),
        ("ai", "pd", "", None, 0.0),
    ]


def test_who_contradicts_another_member_has_no_workload_and_its_calls_hear_whom(cluster):
    one, other = {**DECODE, "ratio__max": "2"}, {**DECODE, "ratio__max": "3"}
    census = cluster().take(
        scaled("p", trigger(**PREFILL)), scaled("d1", trigger(**one)), scaled("d2", trigger(**other))
    )
    assert names(census) == ["ai/d1", "ai/p"]
    bound = "must be that of ai/d1 for role decode: from 0 to 2 for each of prefill"
    assert said(census) == [f"ai/ScaledObject/d2: spec.triggers.0.metadata.ratio: {bound}"]
    words = {key.replace("__", "."): value for key, value in other.items()}
    assert refusal(census, "d2", **words)[1] == f"metadata.ratio: {bound}"


def test_annotations_that_contradict_a_member_name_it_too(cluster):
    world = cluster()
    census = world.take(
        scaled("a", trigger(**PREFILL, ratio__to="decode", ratio__min="1")),
        deployment("b", **DECODE, ratio__min="1"),
    )
    assert names(census) == ["ai/a"]
    (sentence,) = said(census)
    circle = "must not close a circle: the ratios of ai/a lead back to role decode"
    assert sentence == f"ai/Deployment/b: tidegate.dev/ratio.to: {circle}"


def test_a_contradiction_in_one_namespace_costs_nobody_in_another(cluster):
    other = scaled("d", trigger(**DECODE, ratio__max="3"), namespace="b")
    census = cluster().take(scaled("d", trigger(**DECODE, ratio__max="2"), namespace="a"), other)
    assert (names(census), said(census)) == (["a/d", "b/d"], [])
