"""What `tidegate check` says of a manifest before it is applied: to the letter, and to the column."""

from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.config import parse
from scaler.config.scalars import ENGINES
from scaler.lint.triggers import is_manifest
from tests.fakes.manifests import check_manifests

_NO_WAKER = "0 without a gateway: nothing can wake it, so one replica is kept (reason no_wake_source)"
_STRING = "must be a string: put it in quotes"


def _scaled(metadata, kind="external-push", spec="minReplicaCount: 1", more=""):
    """Line 5 is `spec`, line 8 the metadata, which begins in column 17."""
    return dedent(f"""\
        apiVersion: keda.sh/v1alpha1
        kind: ScaledObject
        metadata: {{namespace: ai, name: chat}}
        spec:
          {{{spec}, scaleTargetRef: {{name: chat}}, cooldownPeriod: 30, triggers: [{{
            type: {kind},
            {more}
            metadata: {{{metadata}}}}}]}}
        """)


def _said(text, config=None):
    return [str(problem) for problem in check_manifests(text, "m.yaml", config).problems]


def _ours(words):
    return f'scalerAddress: "tidegate:6000", {words}'


def test_two_lines_with_a_minimum_are_fine():
    assert _said(_scaled(_ours("engine: vllm"))) == []


@pytest.mark.parametrize(("words", "expected"), [
    ("engine: vlm", ("8:56: {0}engine: must be one of " + ", ".join(ENGINES) + " (did you mean vllm?), got 'vlm'")),
    ("engine: vllm, keep-warm: 5m", "8:62: {0}keep-warm: unknown key; did you mean keep_warm?"),
    ("engine: vllm, gateway: http://169.254.169.254", ("8:71: {0}gateway: must be the name of a Service in its own "
     "namespace, or of a shared gateway of Tidegate's configuration; an address is never fetched, and another "
     "namespace's Service is not asked, got 'http://169.254.169.254'")),
    ("engine: vllm, keep_warm: 10s", "8:73: {0}keep_warm: must be at least 3 scrape intervals (15s), got '10s'"),
    ("port: '80', gateway: a", "8:48: {0}port: goes with engine, which is not given"),
    # Kubernetes refuses what is no string.
    ("engine: vllm, port: 8000", f"8:68: {{0}}port: {_STRING}, got '8000'"),
    ("engine: vllm, model: on", f"8:69: {{0}}model: {_STRING}, got 'on'"),
    ("engine: vllm, model: ~", f"8:69: {{0}}model: {_STRING}, got '~'"),
    ("engine: vllm, model: 1e3", f"8:69: {{0}}model: {_STRING}, got '1e3'"),
    ("engine: vllm, model: [a]", "8:62: {0}model: must be a string, not a mapping or list"),
    ("engine: vllm, model: a, model: b", "8:72: {0}model: duplicate key: which value applies is undefined"),
])  # fmt: skip
def test_a_wrong_word_is_told_at_its_place(words, expected):
    prefix = "spec.triggers.0.metadata."
    lines = _said(_scaled(_ours(words)))

    assert lines[:1] == [f"m.yaml:{expected.format(prefix)}"]


@pytest.mark.parametrize("value", ["5m", "1:30", "2026-11-21", "'5'", "vllm", "0x", "1.2.3"])
def test_what_kubernetes_takes_for_a_string_is_one(value):
    assert not [line for line in _said(_scaled(_ours(f"engine: vllm, model: {value}"))) if _STRING in line]


def test_a_trigger_that_does_not_say_where_tidegate_is_is_told_so():
    (line,) = _said(_scaled("engine: vllm"))

    assert line == "m.yaml:8:15: spec.triggers.0.metadata.scalerAddress: must be given: the address of Tidegate"


def test_the_metric_is_a_number_of_replicas_and_no_ratio():
    (line,) = _said(_scaled(_ours("engine: vllm"), more="metricType: Value,"))

    assert line.startswith("m.yaml:7:17: error TG034: spec.triggers.0.metricType: must be AverageValue or absent")


@pytest.mark.parametrize(("spec", "expected"), [
    ("minReplicaCount: 0", f"5:4: warning TG001: spec.minReplicaCount: {_NO_WAKER}"),
    ("pollingInterval: 5", f"5:3: warning TG001: spec.minReplicaCount: {_NO_WAKER}; the default is 0"),
    ("minReplicaCount: 2, idleReplicaCount: 0",
     f"5:24: warning TG001: spec.idleReplicaCount: {_NO_WAKER.replace('one replica is', 'replicas.min are')}"),
])  # fmt: skip
def test_zero_without_a_gateway_is_a_warning_that_it_will_not_sleep(spec, expected):
    assert _said(_scaled(_ours("engine: vllm"), spec=spec)) == [f"m.yaml:{expected}"]


def test_zero_with_a_gateway_is_what_a_push_trigger_is_for():
    words = _ours("engine: vllm, gateway: epp")

    assert _said(_scaled(words, spec="minReplicaCount: 0")) == []
    assert _said(_scaled(words, spec="minReplicaCount: 0", kind="external")) == [
        (
            "m.yaml:6:5: warning TG003: spec.triggers.0.type: wakes only when KEDA polls (pollingInterval, 30 s "
            "by default): "
            "external-push wakes at once"
        )
    ]
    assert _said(_scaled(words, kind="external")) == []


def test_a_cooldown_that_nobody_wrote_is_said_to_add_up():
    text = _scaled(_ours("gateway: epp, keep_warm: 10m"), spec="minReplicaCount: 0").replace("cooldownPeriod: 30, ", "")

    assert _said(text) == [
        (
            "m.yaml:5:3: warning TG006: spec.cooldownPeriod: is 5m by default and begins when "
            "keep_warm (10m) is "
            "over: asleep after 15m; set it to 30 or less"
        )
    ]
    assert _said(text.replace("minReplicaCount: 0", "minReplicaCount: 1")) == []


def test_counts_that_no_workload_can_have_are_errors():
    (line,) = _said(_scaled(_ours("engine: vllm"), spec="minReplicaCount: 1, idleReplicaCount: 1"))

    assert line.endswith("spec.idleReplicaCount: must be 0, got '1'")


def test_a_scale_target_whose_pods_cannot_be_found_is_an_error():
    text = _scaled(_ours("engine: vllm")).replace("{name: chat}, cool", "{kind: Widget, name: chat}, cool")

    assert "spec.scaleTargetRef: must be KIND/NAME, KIND one of Deployment, " in _said(text)[0]
    assert _said(text.replace("engine: vllm", "gateway: epp")) == []


@pytest.mark.parametrize(("name", "place"), [("", "3:11"), ("name: Chat", "3:33"), ("name: 7_7", "3:33")])
def test_an_object_whose_name_no_workload_can_have_is_told_so(name, place):
    bad = "must be the name of a Kubernetes workload (lower-case letters, digits and '-', at most 253 characters), got "
    scaled = _scaled(_ours("engine: vllm")).replace("name: chat}", f"{name}}}", 1)
    (line,) = _said(scaled)
    assert line.startswith(f"m.yaml:{place}: metadata.name: {bad}")
    annotated = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{annotations: {{tidegate.dev/engine: vllm}}, {}}}\n"
    (line,) = _said(annotated.format(name))
    assert ": metadata.name: must name a Deployment: lower-case letters, digits, '-' and '.'" in line


def test_a_scaled_job_is_its_own_target():
    text = _scaled(_ours("engine: vllm, gateway: epp"), spec="minReplicaCount: 0").replace("ScaledObject", "ScaledJob")

    assert _said(text.replace("scaleTargetRef: {name: chat}, cooldownPeriod: 30, ", "")) == []


@pytest.mark.parametrize("metadata", [
    'scalerAddress: "other:6000", path: /x, query: y',  # somebody else's words among them
    'scalerAddress: "other:6000"',
    "value: '5'",
])  # fmt: skip
def test_another_external_scalers_trigger_is_nobodys_business(metadata):
    checked = check_manifests(_scaled(metadata), "m.yaml", None)

    assert checked == ([], 1)


@pytest.mark.parametrize("metadata", [
    'scalerAddress: "x:6000", engine: vlm',
    'scalerAddress: "x:6000", workload: A',
    'scalerAddress: "my-tidegate.infra:6000", quer: y',
])  # fmt: skip
def test_a_trigger_is_ours_by_its_address_or_its_words(metadata):
    assert len(_said(_scaled(metadata))) >= 1


def test_other_documents_are_counted_and_passed_over():
    others = "apiVersion: v1\nkind: ConfigMap\ndata: {a: &x b, c: *x, on: yes}\n---\n---\n"
    checked = check_manifests(others + _scaled(_ours("engine: vllm")), "m.yaml", None)

    assert checked == ([], 1)


def test_the_items_of_a_list_are_looked_at():
    item = _scaled(_ours("engine: vlm")).replace("\n", "\n    ")
    (problem,) = check_manifests(f"apiVersion: v1\nkind: List\nitems:\n  - {item}", "m.yaml", None).problems

    assert problem.line == 3 + 8


def test_what_is_merged_in_is_there():
    text = f"x: &m {{{_ours('engine: vllm')}}}\n---\n" + _scaled(_ours("engine: vllm"))
    merged = _scaled("<<: {scalerAddress: 'tidegate:6000', engine: vlm}, engine: vllm")

    assert _said(text) == []
    assert _said(merged) == []


def test_a_text_that_is_no_yaml_is_told_where_and_the_documents_before_it_are_checked():
    lines = _said(_scaled(_ours("engine: vlm")) + "---\na: [\n")

    assert [line.split(": ")[0] for line in lines] == ["m.yaml:8:56", "m.yaml:11:1"]
    assert "not valid YAML" in lines[1]
    assert _said("[" * 2000) == ["m.yaml:1:1: is nested too deep"]


_ANNOTATED = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  namespace: ai
  name: chat
  annotations:
    other.example/engine: x
    tidegate.dev/engine: vllm
"""


def test_annotations_are_checked_like_a_trigger():
    text = _ANNOTATED + "    tidegate.dev/kep_warm: 5m\n    tidegate.dev/replicas.max: 5\n"
    place = "metadata.annotations.tidegate.dev/"

    assert _said(_ANNOTATED) == []
    assert _said(text) == [
        f"m.yaml:9:5: {place}kep_warm: unknown key; did you mean keep_warm?",
        f"m.yaml:10:32: {place}replicas.max: {_STRING}, got '5'",
    ]


def test_a_minimum_of_zero_in_annotations_needs_a_gateway_too():
    assert _said(_ANNOTATED + "    tidegate.dev/replicas.min: '0'\n") == [
        f"m.yaml:9:5: warning TG001: metadata.annotations.tidegate.dev/replicas.min: {_NO_WAKER}"
    ]


@pytest.mark.parametrize(("text", "expected"), [
    (_ANNOTATED.replace("Deployment", "DaemonSet"),
     ("m.yaml:8:5: warning TG080: metadata.annotations.tidegate.dev/engine: is not read on a DaemonSet: it is read on "
      "Deployment, StatefulSet, LeaderWorkerSet, Rollout")),
    (_ANNOTATED.partition("  annotations")[0]
     + "spec: {template: {metadata: {annotations: {tidegate.dev/engine: vllm}}}}\n",
     ("m.yaml:6:44: warning TG080: spec.template.metadata.annotations.tidegate.dev/engine: is not read on pods: "
      "annotate the "
      "Deployment itself")),
    (_ANNOTATED.replace("apps/v1", "keda.sh/v1alpha1").replace("Deployment", "ScaledObject"),
     ("m.yaml:8:5: warning TG080: metadata.annotations.tidegate.dev/engine: is not read on a ScaledObject: use "
      "the metadata of its trigger; only tidegate.dev/brake is read")),
])  # fmt: skip
def test_annotations_where_nobody_reads_them_are_a_warning(text, expected):
    assert _said(text) == [expected]


def test_a_manifest_is_checked_against_the_configuration_it_will_meet():
    config = parse(
        dedent("""\
            kubernetes: {}
            scrape: {interval: 1s}
            gateways: [{name: epp, namespaces: [ai], page: {service: epp.gateways}}]
            workloads: [{namespace: ai, name: chat, gateway: {service: x}}]
            """), "c.yaml"
    )[0]  # fmt: skip
    words = _ours("engine: vllm, gateway: epp, gateway_port: '9', keep_warm: 3s")
    shared = _scaled(words).replace("name: chat", "name: code")

    assert [line.split(": ")[1] for line in _said(shared, config)] == [
        "warning TG087", "spec.triggers.0.metadata.gateway_port",
    ]  # fmt: skip
    assert [line.split(": ")[1] for line in _said(shared)] == ["spec.triggers.0.metadata.keep_warm"]
    assert _said(_scaled(_ours("workload: chat")), config) == []
    (line,) = _said(_scaled(_ours("workload: other")), config)
    assert line.endswith("must be a workload of this namespace in Tidegate's configuration, got 'other'")
    (line,) = _said(_scaled(words), config)
    assert "must have no word of Tidegate's: the workload ai/chat is in Tidegate's configuration" in line
    # Without a word it is the workload of its own name.
    assert _said(_scaled('scalerAddress: "tidegate:6000"'), config) == []
    assert len(_said(_scaled('scalerAddress: "tidegate:6000"'))) == 1


@pytest.mark.parametrize(("text", "expected"), [
    ("apiVersion: v1\nkind: X\n", True),
    ('{"kind": "X",\n  "apiVersion": "v1"}', True),
    ("---\n- apiVersion: v1\n  kind: X\n", True),
    ("gpus: [{dns: a, kind: dcgm}]\n", False),
    ("gpus:\n  - dns: a\n    kind: dcgm\n", False),
])  # fmt: skip
def test_a_manifest_is_told_from_a_configuration_by_its_version_and_kind(text, expected):
    assert is_manifest(text) is expected


_PIECES = st.sampled_from([
    "apiVersion: keda.sh/v1alpha1\n", "kind: ScaledObject\n", "kind: List\n", "items: *a\n", "spec:\n", "  triggers:\n",
    "    - type: external\n", "      metadata: {engine: vllm, scalerAddress: tidegate}\n", "metadata: &a\n",
    "  <<: *a\n",
    "  annotations: {tidegate.dev/engine: x}\n", "  minReplicaCount: 1e9\n", "---\n", "- *a\n", "{", "]",
    "kind: Deployment\n",
    "  idleReplicaCount: -1\n", "  scaleTargetRef: 5\n", "? [a]\n: b\n", "  fallback: x\n",
])  # fmt: skip


@given(st.lists(_PIECES, max_size=14).map("".join))
def test_no_manifest_is_ever_a_traceback(text):
    for problem in check_manifests(text, "m.yaml", None).problems:
        assert problem.line >= 1
        assert "\n" not in str(problem)
