"""The objects of one run are seen together, wherever they stand, and each problem at its own line."""

import io

import pytest
from click.testing import CliRunner

from scaler.cli import main
from tests.scaler.lint.parts import CPU, OURS, asking, deployed, hpa, scaled

ADOPTS = "scaledobject.keda.sh/transfer-hpa-ownership"


def test_parts_of_tests_are_right_in_everything():
    assert CliRunner().invoke(main, ["check", "-"], input=f"{deployed()}---\n{scaled()}").output == "1 file(s) fine\n"


def test_an_autoscaler_and_its_workload_are_seen_together_from_two_files(lint):
    (line,) = lint(scaled(), deployed(spec="replicas: 2"))
    back = "is reset each time this is applied: ScaledObject ai/chat scales it"
    assert line == f"1.yaml:6:3: warning TG021: spec.replicas: {back}"


@pytest.mark.parametrize("text", [
    scaled(namespace="other"), deployed(), hpa(CPU).replace("kind: Deployment", "kind: StatefulSet"), "",
])  # fmt: skip
def test_what_nobody_scales_is_not_judged_by_how_it_would_be_scaled(text, rules_of):
    assert rules_of(f"{deployed(spec='replicas: 2', ready='', ends='', grace='')}---\n{text}") == []


def test_objects_of_a_list_are_objects(rules_of):
    documents = [text.replace("\n", "\n  ").rstrip() for text in (deployed(spec="replicas: 2"), scaled())]
    items = "".join(f"- {text}\n" for text in documents)
    assert rules_of(f"apiVersion: v1\nkind: List\nitems:\n{items}") == ["TG021"]


def test_lines_are_those_of_the_whole_file(lint):
    (line,) = lint(f"# one\n---\n{scaled()}---\n---\n{deployed(spec='replicas: 2')}")
    assert line.startswith("0.yaml:21:3: warning TG021: spec.replicas: ")


def test_standard_input_is_a_file_among_others(tmp_path):
    (tmp_path / "scaled.yaml").write_text(scaled())
    asked = ["check", "-", str(tmp_path / "scaled.yaml")]
    done = CliRunner().invoke(main, asked, input=io.BytesIO(deployed(spec="replicas: 2").encode()))
    first, last = done.output.splitlines()
    assert first.startswith("-:6:3: warning TG021: spec.replicas: ")
    assert last == "2 file(s) fine, 1 warning(s)"


def test_a_configuration_may_come_through_standard_input_too():
    done = CliRunner().invoke(main, ["check", "-"], input="tick: 2h\ngpus: [{dns: a}]\n")
    assert (done.exit_code, done.output) == (1, "-:1:7: tick: must be at most 1m, got 2h\n")


@pytest.mark.parametrize(("annotations", "expected"), [
    ('autoscaling.keda.sh/paused: "true"', []), ('autoscaling.keda.sh/paused: ""', []),
    ('autoscaling.keda.sh/paused: "false"', ["TG020"]), ('autoscaling.keda.sh/paused-replicas: "2"', ["TG020"]),
])  # fmt: skip
def test_a_scaled_object_that_is_paused_is_no_writer(annotations, expected, rules_of):
    paused = asking("sum(http_requests)").replace("name: chat}", f"name: chat, annotations: {{{annotations}}}}}", 1)
    assert rules_of(f"{paused}---\n{hpa(CPU)}") == expected
    assert rules_of(f"{hpa(CPU)}---\n{paused}") == expected


def test_the_second_of_two_writers_is_told_who_the_first_is(lint):
    too = "error TG020: spec.scaleTargetRef: Deployment/chat is scaled by HorizontalPodAutoscaler ai/one too (0.yaml)"
    assert lint(hpa(CPU, name="one"), scaled(), hpa(CPU, name="two")) == [f"1.yaml:5:3: {too}", f"2.yaml:5:3: {too}"]


@pytest.mark.parametrize("texts", [
    (scaled(), scaled()),  # the same object in a base and in what was rendered of it
    (scaled(), hpa(CPU, name="keda-hpa-chat")),
    (scaled(more="advanced: {horizontalPodAutoscalerConfig: {name: mine, behavior: {scaleDown: "
                 "{stabilizationWindowSeconds: 30}}}}"), hpa(CPU, name="mine")),
    (scaled().replace("name: chat}", f"name: chat, annotations: {{{ADOPTS}: 'true'}}}}", 1), hpa(CPU)),
    (scaled(), hpa(CPU).replace("namespace: ai", "namespace: dev")),
    (scaled(), hpa(CPU).replace("kind: Deployment", "kind: StatefulSet")),
])  # fmt: skip
def test_one_writer_that_is_seen_twice_is_no_second_one(texts, lint):
    assert lint(*texts) == []


def test_somebody_elses_kind_of_the_same_name_is_not_read(rules_of):
    text = hpa(CPU, minimum=9).replace("autoscaling/v2", "example.com/v1")
    assert rules_of(text) == []


def test_annotations_and_the_hpa_beside_them_are_seen_together(rules_of):
    engine = "tidegate.dev/engine: vllm"
    behavior = "behavior: {scaleDown: {stabilizationWindowSeconds: 30}}"
    asleep = hpa(OURS, minimum=0, behavior=behavior)
    assert rules_of(f"{deployed(annotations=engine)}---\n{asleep}") == ["TG001"]
    assert rules_of(f"{deployed(annotations=f'{engine}, tidegate.dev/gateway: epp')}---\n{asleep}") == []
    assert rules_of(f"{deployed(annotations=engine)}---\n{hpa(OURS, behavior=behavior)}") == []
    assert rules_of(asleep) == []  # the configuration may describe it
