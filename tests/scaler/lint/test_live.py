"""Lints a live namespace over the real protocol: with the rules of files, and those that need a cluster."""

import json

import pytest
from click.testing import CliRunner

from exporter.kubernetes.resources import CHECKED, DEPLOYMENTS, LEADERWORKERSETS, PODMONITORS, SCALEDOBJECTS
from scaler.cli import main
from tests.fakes.kubernetes import FakeKubernetes, serving_in_thread, write_kubeconfig
from tests.fakes.objects import deployment, hpa, scaled_object, trigger

_OURS = trigger(scalerAddress="tidegate:6000", engine="vllm")
_UNREAD = {
    "status": {
        "conditions": [
            {"type": "ScalingActive", "status": "False", "reason": "FailedGetExternalMetric", "message": "no\n answer"}
        ]
    }
}


@pytest.fixture
def cluster():
    with serving_in_thread(FakeKubernetes(CHECKED)) as fake:
        yield fake


@pytest.fixture
def check(cluster, tmp_path):
    """`check("-n", "ai")` runs against the cluster."""
    file = write_kubeconfig(tmp_path / "kubeconfig", cluster.url)

    def run(*options):
        return CliRunner().invoke(main, ["check", "--kubeconfig", str(file), *options])

    return run


def problems(done):
    """Object, rule and key of each problem."""
    return [(one["file"], one["rule"], one["key"]) for one in json.loads(done.stdout)]


def test_namespace_gets_the_problems_of_its_files(cluster, check):
    cluster.put(deployment("chat"), scaled_object("chat", target="chat", minimum=0, maximum=8, triggers=[_OURS]))

    done = check("-n", "ai", "-o", "json")

    assert done.exit_code == 0
    window = "spec.advanced.horizontalPodAutoscalerConfig.behavior.scaleDown.stabilizationWindowSeconds"
    assert problems(done) == [
        ("ScaledObject ai/chat", "TG001", "spec.minReplicaCount"),
        ("ScaledObject ai/chat", "TG031", window),
    ]


def test_problem_names_the_object_in_place_of_a_line(cluster, check):
    cluster.put(scaled_object("chat", target="chat", minimum=1, maximum=8, triggers=[_OURS]))

    first, last = check("-n", "ai").stdout.splitlines()

    assert first.startswith("ScaledObject ai/chat: info TG031: spec.advanced.")
    assert last == "1 object(s) checked, 1 hint(s)"


def test_condition_of_the_hpa_is_reported_in_one_line(cluster, check):
    cluster.put(deployment("chat"), hpa("chat", target="chat", **_UNREAD))

    done = check("-n", "ai")

    assert done.exit_code == 1
    assert done.stdout == (
        "HorizontalPodAutoscaler ai/chat: error TG100: status.conditions.0: ScalingActive is False: "
        "FailedGetExternalMetric: no answer\n"
    )


def test_long_message_is_cut(cluster, check):
    condition = {"type": "Ready", "status": "False", "reason": "TriggerError", "message": "x" * 241}
    cluster.put(deployment("chat"), scaled_object("chat", target="chat", status={"conditions": [condition]}))

    assert check("-n", "ai").stdout.endswith(f"Ready is False: TriggerError: {'x' * 240}…\n")


def test_hpa_of_keda_is_no_second_writer_but_its_conditions_are_reported(cluster, check):
    keda_hpa = hpa("keda-hpa-chat", target="chat", owner=("ScaledObject", "chat"), **_UNREAD)
    other = trigger("cpu", value="80")
    cluster.put(deployment("chat"), scaled_object("chat", target="chat", triggers=[other]), keda_hpa)

    assert problems(check("-n", "ai", "-o", "json")) == [
        ("HorizontalPodAutoscaler ai/keda-hpa-chat", "TG100", "status.conditions.0")
    ]


@pytest.mark.parametrize(("owner", "expected"), [("ScaledObject", []), ("InferenceService", ["TG020"])])
def test_hpa_of_any_name_belongs_to_its_owner(cluster, check, owner, expected):
    keda_hpa = hpa("mine", target="chat", owner=(owner, "chat"))
    cluster.put(
        deployment("chat"), scaled_object("chat", target="chat", triggers=[trigger("cpu", value="80")]), keda_hpa
    )

    assert [rule for _, rule, _ in problems(check("-n", "ai", "-o", "json"))] == expected


def test_two_autoscalers_of_one_target_are_reported(cluster, check):
    cluster.put(deployment("chat"), hpa("a", target="chat"), hpa("b", target="chat"))

    assert check("-n", "ai").stdout == (
        "HorizontalPodAutoscaler ai/b: error TG020: spec.scaleTargetRef: Deployment/chat is scaled by "
        "HorizontalPodAutoscaler ai/a too\n"
    )


def test_missing_target_is_reported_if_its_kind_was_listed(cluster, check):
    cluster.put(deployment("other"), hpa("chat", target="chat"))

    assert problems(check("-n", "ai", "-o", "json")) == [
        ("HorizontalPodAutoscaler ai/chat", "TG101", "spec.scaleTargetRef")
    ]


def test_replicas_set_by_an_autoscaler_are_not_those_of_a_manifest(cluster, check):
    cluster.put(deployment("chat", replicas=5), hpa("chat", target="chat"))

    assert problems(check("-n", "ai", "-o", "json")) == []


def test_only_the_given_namespace_is_listed_unless_all_are(cluster, check):
    cluster.put(hpa("a", "ai", target="chat"), hpa("b", "ai", target="chat"), hpa("c", "dev", target="chat"))

    assert "3 object(s)" not in check("-n", "ai").stdout
    assert {each.namespace for each in cluster.requests_for("list")} == {"ai"}
    assert problems(check("-A", "-o", "json")) == [("HorizontalPodAutoscaler ai/b", "TG020", "spec.scaleTargetRef")]
    assert None in {each.namespace for each in cluster.requests_for("list")}


def test_kind_refused_by_rbac_is_reported_and_skipped(cluster, check):
    cluster.put(hpa("a", target="chat"), hpa("b", target="chat"))
    cluster.forbid(DEPLOYMENTS)

    done = check("-n", "ai", "-o", "json")

    assert problems(done) == [("HorizontalPodAutoscaler ai/b", "TG020", "spec.scaleTargetRef")]
    assert done.stderr.startswith("not read: list deployments.apps of namespace ai: HTTP 403, RBAC does not allow it")


def test_cluster_without_keda_or_prometheus_is_checked(cluster, check):
    cluster.uninstall(SCALEDOBJECTS, PODMONITORS)
    cluster.put(deployment("chat"), hpa("chat", target="chat"))

    done = check("-n", "ai")

    assert (done.exit_code, done.stdout, done.stderr) == (0, "2 object(s) fine\n", "")


def test_kind_that_the_cluster_lacks_needs_no_permission(cluster, check):
    cluster.uninstall(LEADERWORKERSETS)
    cluster.forbid(LEADERWORKERSETS)
    cluster.forbid(PODMONITORS)
    cluster.put(deployment("chat"), hpa("chat", target="chat"))

    done = check("-n", "ai")

    assert (done.exit_code, done.stdout) == (0, "2 object(s) fine\n")
    assert done.stderr.startswith("not read: list podmonitors.monitoring.coreos.com of namespace ai: HTTP 403")
    assert len(done.stderr.splitlines()) == 1


def test_check_without_any_permission_is_an_error(cluster, check):
    for resource in CHECKED:
        cluster.forbid(resource)
    cluster.put(deployment("chat"), hpa("a", target="chat"), hpa("b", target="chat"))

    done = check("-n", "ai")

    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == "Error: nothing was checked: no kind of object could be read"


def test_empty_namespace_is_reported(cluster, check):
    cluster.put(deployment("chat"), hpa("a", target="chat"))

    done = check("-n", "al")

    assert (done.exit_code, done.stdout) == (0, "0 object(s) fine\n")
    assert done.stderr == "nothing to check: namespace al has no object of a checked kind\n"


def test_long_lists_are_read_completely(cluster, check):
    cluster.page_objects = 2
    cluster.put(*(deployment(f"d{each}") for each in range(5)), *(hpa(f"h{each}", target="d0") for each in range(5)))

    assert [rule for _, rule, _ in problems(check("-n", "ai", "-o", "json"))] == ["TG020"] * 4


def test_check_only_lists(cluster, check):
    cluster.put(deployment("chat"))
    check("-n", "ai")

    assert {each.verb for each in cluster.requests} == {"list"}


def test_failing_api_is_an_error_and_no_traceback(cluster, check):
    cluster.fail(DEPLOYMENTS, 500)
    done = check("-n", "ai")

    assert (done.exit_code, done.stdout) == (1, "")
    assert (
        done.stderr
        == "Error: list deployments.apps of namespace ai: HTTP 500: the API server says: a fake failure 500\n"
    )


def test_missing_kubeconfig_is_an_error_and_no_traceback(tmp_path):
    done = CliRunner().invoke(main, ["check", "-n", "ai", "--kubeconfig", str(tmp_path / "none")])

    assert (done.exit_code, done.stdout) == (1, "")
    assert "no such file" in done.stderr
