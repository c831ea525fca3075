"""Tests that the objects of one run are checked together, and each problem has its own line."""

import io

import pytest
from click.testing import CliRunner

from scaler.cli import main
from tests.scaler.lint.manifests import CPU, OURS, asking, deployed, hpa, scaled

BEHAVIOR = "behavior: {scaleDown: {stabilizationWindowSeconds: 30}}"
ADOPTS = "scaledobject.keda.sh/transfer-hpa-ownership"


def test_unchanged_parts_have_no_problem():
    assert CliRunner().invoke(main, ["check", "-"], input=f"{deployed()}---\n{scaled()}").output == "1 file(s) fine\n"


def test_autoscaler_and_workload_are_checked_together_from_two_files(lint):
    (line,) = lint(scaled(), deployed(spec="replicas: 2"))
    back = "is reset each time this is applied: ScaledObject ai/chat scales it"
    assert line == f"1.yaml:6:3: warning TG021: spec.replicas: {back}"


@pytest.mark.parametrize("text", [
    scaled(namespace="other"), deployed(), hpa(CPU).replace("kind: Deployment", "kind: StatefulSet"), "",
])  # fmt: skip
def test_workload_without_an_autoscaler_is_not_checked_for_scaling(text, rules_of):
    assert rules_of(f"{deployed(spec='replicas: 2', ready='', ends='', grace='')}---\n{text}") == []


def test_items_of_a_list_are_objects(rules_of):
    documents = [text.replace("\n", "\n  ").rstrip() for text in (deployed(spec="replicas: 2"), scaled())]
    items = "".join(f"- {text}\n" for text in documents)
    assert rules_of(f"apiVersion: v1\nkind: List\nitems:\n{items}") == ["TG021"]


def test_lines_count_from_the_start_of_the_file(lint):
    (line,) = lint(f"# one\n---\n{scaled()}---\n---\n{deployed(spec='replicas: 2')}")
    assert line.startswith("0.yaml:21:3: warning TG021: spec.replicas: ")


def test_standard_input_is_checked_with_other_files(tmp_path):
    (tmp_path / "scaled.yaml").write_text(scaled())
    arguments = ["check", "-", str(tmp_path / "scaled.yaml")]
    done = CliRunner().invoke(main, arguments, input=io.BytesIO(deployed(spec="replicas: 2").encode()))
    first, last = done.output.splitlines()
    assert first.startswith("-:6:3: warning TG021: spec.replicas: ")
    assert last == "2 file(s) checked, 1 warning(s)"


def test_configuration_is_read_from_standard_input():
    done = CliRunner().invoke(main, ["check", "-"], input="tick: 2h\ngpus: [{dns: a}]\n")
    assert (done.exit_code, done.output) == (1, "-:1:7: tick: must be at most 1m, got 2h\n")


@pytest.mark.parametrize(("annotations", "expected"), [
    ('autoscaling.keda.sh/paused: "true"', []), ('autoscaling.keda.sh/paused: ""', []),
    ('autoscaling.keda.sh/paused: "false"', ["TG020"]), ('autoscaling.keda.sh/paused-replicas: "2"', ["TG020"]),
])  # fmt: skip
def test_paused_scaled_object_is_no_writer(annotations, expected, rules_of):
    paused = asking("sum(http_requests)").replace("name: chat}", f"name: chat, annotations: {{{annotations}}}}}", 1)
    assert rules_of(f"{paused}---\n{hpa(CPU)}") == expected
    assert rules_of(f"{hpa(CPU)}---\n{paused}") == expected


def test_second_writer_is_reported_with_the_first(lint):
    too = "error TG020: spec.scaleTargetRef: Deployment/chat is scaled by HorizontalPodAutoscaler ai/one too (0.yaml)"
    assert lint(hpa(CPU, name="one"), scaled(), hpa(CPU, name="two")) == [f"1.yaml:5:3: {too}", f"2.yaml:5:3: {too}"]


@pytest.mark.parametrize("texts", [
    (scaled(), scaled()),  # the same object in a base and in its rendered manifest
    (scaled(), hpa(CPU, name="keda-hpa-chat")),
    (scaled(more="advanced: {horizontalPodAutoscalerConfig: {name: mine, behavior: {scaleDown: "
                 "{stabilizationWindowSeconds: 30}}}}"), hpa(CPU, name="mine")),
    (scaled().replace("name: chat}", f"name: chat, annotations: {{{ADOPTS}: 'true'}}}}", 1), hpa(CPU)),
    (scaled(), hpa(CPU).replace("namespace: ai", "namespace: dev")),
    (scaled(), hpa(CPU).replace("kind: Deployment", "kind: StatefulSet")),
])  # fmt: skip
def test_duplicate_of_one_writer_is_no_second_one(texts, lint):
    assert lint(*texts) == []


def test_foreign_kind_of_the_same_name_is_ignored(rules_of):
    text = hpa(CPU, minimum=9).replace("autoscaling/v2", "example.com/v1")
    assert rules_of(text) == []


def test_annotations_are_checked_with_their_hpa(rules_of):
    engine = "tidegate.dev/engine: vllm"
    asleep = hpa(OURS, minimum=0, behavior=BEHAVIOR)
    assert rules_of(f"{deployed(annotations=engine)}---\n{asleep}") == ["TG001"]
    assert rules_of(f"{deployed(annotations=f'{engine}, tidegate.dev/gateway: epp')}---\n{asleep}") == []
    assert rules_of(f"{deployed(annotations=engine)}---\n{hpa(OURS, behavior=BEHAVIOR)}") == []
    assert rules_of(asleep) == []  # the configuration may describe it


BARE = {"ready": "", "ends": "", "grace": ""}


@pytest.mark.parametrize("annotations", ["tidegate.dev/engine: vllm", "tidegate.dev/gateway: epp"])
@pytest.mark.parametrize("gpu", ["nvidia.com/gpu", "cpu"])
def test_pods_of_an_annotated_object_are_checked_without_its_hpa(annotations, gpu, rules_of, live_rules_of):
    text = deployed(annotations=annotations, gpu=gpu, **BARE)
    for rules in (rules_of(text), rules_of(f"{text}---\n{hpa(OURS, behavior=BEHAVIOR)}"), live_rules_of(text)):
        assert rules == ["TG060", "TG061", "TG063"]


def test_annotated_engine_without_metrics_is_an_error(lint):
    (line,) = lint(deployed(annotations="tidegate.dev/engine: vllm", args="[--disable-log-stats]"))
    assert line.startswith("0.yaml:15:18: error TG066: spec.template.spec.containers.0.args.0: ")


@pytest.mark.parametrize("annotations", [
    "", "example.com/engine: vllm", "tidegate.dev/brake: freeze until 2026-11-24T08:00Z",
    "tidegate.dev/check-ignore: TG021 because of Argo CD",
])  # fmt: skip
def test_pods_are_not_checked_if_no_annotation_makes_a_workload(annotations, rules_of):
    assert rules_of(deployed(annotations=annotations, **BARE)) == []


def test_inherited_annotations_are_not_reported_twice(rules_of):
    engine = "annotations: {tidegate.dev/engine: vllm}"
    owner = deployed(annotations="tidegate.dev/engine: vllm", **BARE)
    refs = "ownerReferences: [{kind: Deployment, name: chat}]"
    child = owner.replace("kind: Deployment", "kind: StatefulSet").replace(engine, f"{engine}, {refs}")
    assert rules_of(f"{owner}---\n{child}") == rules_of(owner)
    assert rules_of(child) == rules_of(owner)  # the owner is not in the run


QUEUE = "shows the same queue as that of ai/chat without a common group: each counts all of it"


@pytest.mark.parametrize(("keys", "is_shared"), [
    ("gateway: epp", True), ("gateway: epp, model: m", True), ("gateway: other", False), ("engine: vllm", False),
])  # fmt: skip
def test_second_workload_of_one_queue_is_reported(keys, is_shared, lint):
    one, two = scaled("gateway: epp"), scaled(keys, name="code").replace("Ref: {name: chat", "Ref: {name: code")
    expected = [f"1.yaml:11:79: warning TG087: spec.triggers.0.metadata.gateway: {QUEUE}"] if is_shared else []
    assert [line.partition(". Give")[0] for line in lint(one, two)] == expected
    assert len(lint(two, one)) == len(expected)


def test_queue_of_annotations_is_that_of_triggers(lint):
    annotated = deployed(annotations="tidegate.dev/gateway: epp").replace("name: chat", "name: code")
    (line,) = lint(annotated, scaled("gateway: epp"))
    assert line.startswith(f"0.yaml:3:53: warning TG087: metadata.annotations.tidegate.dev/gateway: {QUEUE}")


def test_one_workload_in_two_objects_shares_no_queue(rules_of):
    owner = deployed(annotations="tidegate.dev/gateway: epp")
    child = owner.replace("apps/v1\nkind: Deployment", "argoproj.io/v1alpha1\nkind: Rollout").replace(
        "name: chat,", "name: made, ownerReferences: [{kind: Deployment, name: chat}],"
    )
    assert rules_of(f"{owner}---\n{child}") == []
    assert rules_of(f"{owner}---\n{child.replace('ownerReferences', 'others')}") == ["TG087"]
    assert rules_of(f"{scaled('gateway: epp')}---\n{scaled('gateway: epp')}") == []
