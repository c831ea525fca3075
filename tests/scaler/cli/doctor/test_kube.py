"""The cluster, over loopback: each check as it should be, and as it should not."""

import pytest

from exporter.clock import WallClock
from exporter.kubernetes.resources import LEADERWORKERSETS, RESOURCES, ROLLOUTS, SCALEDJOBS, SCALEDOBJECTS
from scaler.cli.doctor import kube
from tests.fakes import objects

FILES = "certificate: /c, key: /k"
METRICS_API = f"listen: {{metrics_api: {{{FILES}, external: true, service: tidegate.tidegate}}}}"
PEERS = f"listen: {{peers: {{{FILES}, ca: /a, server_name: tidegate, lease: tidegate.tidegate}}}}"
EXTERNAL = "APIService v1beta1.external.metrics.k8s.io"


@pytest.fixture
def examine(config):
    async def ask(kubernetes="", more=""):
        made = config(kubernetes, more)
        return (await kube.examine(made, made.kubernetes, WallClock())).checks

    return ask


def one(checks, name):
    [found] = [check for check in checks if check.name == name]
    return found


async def test_where_all_is_well_that_is_said(fake, examine, said):
    fake.put(objects.deployment("keda-operator", "keda", labels={"app.kubernetes.io/version": "2.19.0"}))
    fake.api_services["v1beta1.external.metrics.k8s.io"] = {"service": {"namespace": "keda", "name": "keda-metrics"}}
    checks = await examine()
    assert said(checks) == {
        "API server": "ok",
        "clock of the API server": "ok",
        "identity": "ok",
        "kinds": "ok",
        "rights": "ok",
        "KEDA": "ok",
        EXTERNAL: "ok",
    }
    assert one(checks, "rights").said == "all 14 that the configuration needs"
    assert one(checks, "KEDA").said == "2.19.0"


async def test_an_api_server_that_is_not_there_ends_it(fake, examine, said, tmp_path):
    fake.refuse()
    checks = await examine()
    assert [(check.name, check.status) for check in checks] == [("API server", "fail")]
    (tmp_path / "kubeconfig").unlink()
    checks = await examine()
    assert [(check.name, check.status) for check in checks] == [("API server", "fail")]
    assert "no such file" in checks[0].said


@pytest.mark.parametrize(("minor", "status"), [("35", "ok"), ("36+", "ok"), ("34", "warn"), ("29+", "warn")])
async def test_before_1_35_steps_are_rounded(fake, examine, minor, status):
    fake.minor = minor
    assert one(await examine(), "API server").status == status


async def test_a_clock_that_is_off_is_told(fake, examine):
    fake.date = "Sun, 22 Nov 2020 10:00:00 GMT"
    clock = one(await examine(), "clock of the API server")
    assert (clock.status, "behind ours" in clock.said) == ("warn", True)


async def test_a_persons_own_rights_are_not_tidegates(fake, examine):
    fake.identity = "ann"
    assert one(await examine(), "identity").said == "ann, which is no ServiceAccount"


async def test_each_right_that_is_missing_is_named_with_the_rule_that_gives_it(fake, examine):
    fake.may = lambda wanted: (wanted["resource"], wanted["verb"]) not in {("events", "patch"), ("pods", "watch")}
    checks = await examine("namespaces: [ai]")
    missing = {check.name: check for check in checks if check.name.startswith("right")}
    assert set(missing) == {"right: list, watch pods in ai", "right: create, patch events.events.k8s.io in ai"}
    events = missing["right: create, patch events.events.k8s.io in ai"]
    assert (events.status, events.said) == ("fail", "may not patch: Events; or set kubernetes.events: false")
    assert events.do == (
        "give Tidegate's ServiceAccount a Role in ai with "
        'apiGroups ["events.k8s.io"], resources ["events"], verbs ["create", "patch"]'
    )


async def test_a_right_to_what_the_cluster_does_not_have_is_not_needed(fake, examine):
    fake.may = lambda wanted: wanted["resource"] != "leaderworkersets"
    assert "right: list, watch leaderworkersets.leaderworkerset.x-k8s.io" in {check.name for check in await examine()}
    fake.uninstall(LEADERWORKERSETS)
    assert one(await examine(), "rights").said == f"all {len(RESOURCES)} that the configuration needs"


ROLLOUT = "workloads: [{namespace: ai, name: a, engine: vllm, replicas: {min: 1}, pods: {target: Rollout/a}}]"


async def test_a_kind_that_is_not_there_is_no_matter_unless_a_workload_names_it(fake, examine):
    kinds = "ScaledObject, ScaledJob, LeaderWorkerSet, Rollout, InferenceService"
    assert one(await examine(more=ROLLOUT), "kinds").said == f"{kinds}; without none"
    fake.uninstall(ROLLOUTS)
    found = one(await examine(), "kinds")
    assert (found.status, found.said.partition("; ")[2]) == ("ok", "without Rollout")
    found = one(await examine(more=ROLLOUT), "kinds")
    assert (found.status, "argoproj.io/v1alpha1 Rollout" in found.do) == ("fail", True)


async def test_a_review_that_fails_is_no_missing_right(fake, examine):
    fake.fail("SelfSubjectAccessReview", 500)
    checks = [check for check in await examine() if check.name.startswith("right")]
    assert {check.status for check in checks} == {"warn"}


async def test_without_keda_that_is_said(fake, examine, said):
    fake.uninstall(SCALEDOBJECTS, SCALEDJOBS)
    checks = await examine()
    assert (one(checks, "KEDA").status, "the cluster has none" in one(checks, "KEDA").said) == ("ok", True)
    assert EXTERNAL not in said(checks)


@pytest.mark.parametrize(
    ("service", "status"),
    [
        ({"namespace": "keda", "name": "keda-operator-metrics-apiserver"}, "ok"),
        ({"namespace": "monitoring", "name": "prometheus-adapter"}, "fail"),
        (None, "fail"),
    ],
)
async def test_kedas_own_api_group_must_be_kedas(fake, examine, service, status):
    if service is not None:
        fake.api_services["v1beta1.external.metrics.k8s.io"] = {"service": service}
    assert one(await examine(), EXTERNAL).status == status


@pytest.mark.parametrize(
    ("service", "status"),
    [
        ({"namespace": "tidegate", "name": "tidegate"}, "ok"),
        ({"namespace": "keda", "name": "keda-operator-metrics-apiserver"}, "fail"),
        (None, "fail"),
    ],
)
async def test_with_the_metrics_api_it_must_be_tidegates(fake, examine, service, status):
    if service is not None:
        fake.api_services["v1beta1.external.metrics.k8s.io"] = {"service": service}
    assert one(await examine(more=METRICS_API), EXTERNAL).status == status


async def test_where_our_own_service_is_not_named_who_holds_the_group_is_said(fake, examine):
    fake.api_services["v1beta1.external.metrics.k8s.io"] = {"service": {"namespace": "keda", "name": "x"}}
    held = one(await examine(more=METRICS_API.replace(", service: tidegate.tidegate", "")), EXTERNAL)
    assert (held.status, held.said) == ("warn", "Service keda/x")


async def test_the_lease_says_who_leads_or_why_it_cannot_be_seen(fake, examine):
    assert one(await examine(more=PEERS), "Lease tidegate.tidegate").said == "nobody leads now"
    fake.fail("Lease", 403)
    assert one(await examine(more=PEERS), "Lease tidegate.tidegate").status == "fail"


async def test_a_peer_without_the_right_to_write_the_lease_is_told(fake, examine):
    fake.may = lambda wanted: (wanted["resource"], wanted["verb"]) != ("leases", "update")
    right = one(await examine(more=PEERS), "right: get, update leases.coordination.k8s.io tidegate in tidegate")
    assert right.said.startswith("may not update")
