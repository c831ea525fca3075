"""Each check of the cluster passes and fails as it should, against a fake API server."""

import pytest

from exporter.clock import WallClock
from exporter.kubernetes.resources import LEADERWORKERSETS, RESOURCES, ROLLOUTS, SCALEDJOBS, SCALEDOBJECTS
from scaler.cli.doctor import kubernetes as doctor
from tests.fakes import objects

FILES = "certificate: /c, key: /k"
METRICS_API = f"listen: {{metrics_api: {{{FILES}, external: true, service: tidegate.tidegate}}}}"
PEERS = f"listen: {{peers: {{{FILES}, ca: /a, server_name: tidegate, lease: tidegate.tidegate}}}}"
EXTERNAL = "APIService v1beta1.external.metrics.k8s.io"


@pytest.fixture
def examine(config):
    async def run(kubernetes="", more=""):
        parsed = config(kubernetes, more)
        return (await doctor.examine(parsed, parsed.kubernetes, WallClock())).checks

    return run


def one(checks, name):
    [match] = [check for check in checks if check.name == name]
    return match


async def test_all_checks_pass_on_a_good_cluster(fake, examine, statuses):
    fake.put(objects.deployment("keda-operator", "keda", labels={"app.kubernetes.io/version": "2.19.0"}))
    fake.api_services["v1beta1.external.metrics.k8s.io"] = {"service": {"namespace": "keda", "name": "keda-metrics"}}
    checks = await examine()
    assert statuses(checks) == {
        "API server": "ok",
        "clock of the API server": "ok",
        "identity": "ok",
        "kinds": "ok",
        "permissions": "ok",
        "KEDA": "ok",
        EXTERNAL: "ok",
    }
    assert one(checks, "permissions").result == "all 16 that the configuration needs"
    assert one(checks, "KEDA").result == "2.19.0"


async def test_unreachable_api_server_is_the_only_check(fake, examine, tmp_path):
    fake.refuse()
    checks = await examine()
    assert [(check.name, check.status) for check in checks] == [("API server", "fail")]
    (tmp_path / "kubeconfig").unlink()
    checks = await examine()
    assert [(check.name, check.status) for check in checks] == [("API server", "fail")]
    assert "no such file" in checks[0].result


@pytest.mark.parametrize(("minor", "status"), [("35", "ok"), ("36+", "ok"), ("34", "warn"), ("29+", "warn")])
async def test_kubernetes_before_1_35_is_a_warning(fake, examine, minor, status):
    fake.minor = minor
    assert one(await examine(), "API server").status == status


async def test_clock_offset_of_the_api_server_is_a_warning(fake, examine):
    fake.date = "Sun, 22 Nov 2020 10:00:00 GMT"
    clock = one(await examine(), "clock of the API server")
    assert (clock.status, "behind this machine" in clock.result) == ("warn", True)


async def test_identity_that_is_no_service_account_is_a_warning(fake, examine):
    fake.identity = "ann"
    assert one(await examine(), "identity").result == "ann is not a ServiceAccount"


async def test_missing_permission_has_the_rule_to_add(fake, examine):
    fake.may = lambda permission: (
        (permission["resource"], permission["verb"]) not in {("events", "patch"), ("pods", "watch")}
    )
    checks = await examine("namespaces: [ai]")
    missing = {check.name: check for check in checks if check.name.startswith("permission:")}
    assert set(missing) == {
        "permission: list, watch pods in ai",
        "permission: create, patch events.events.k8s.io in ai",
    }
    events = missing["permission: create, patch events.events.k8s.io in ai"]
    assert (events.status, events.result) == ("fail", "may not patch: Events; or set kubernetes.events: false")
    assert events.remedy == (
        "give Tidegate's ServiceAccount a Role in ai with "
        'apiGroups ["events.k8s.io"], resources ["events"], verbs ["create", "patch"]'
    )


async def test_permission_for_a_kind_that_is_not_served_is_not_needed(fake, examine):
    fake.may = lambda permission: permission["resource"] != "leaderworkersets"
    assert "permission: list, watch leaderworkersets.leaderworkerset.x-k8s.io" in {
        check.name for check in await examine()
    }
    fake.uninstall(LEADERWORKERSETS)
    assert one(await examine(), "permissions").result == f"all {len(RESOURCES)} that the configuration needs"


ROLLOUT = "workloads: [{namespace: ai, name: a, engine: vllm, replicas: {min: 1}, pods: {target: Rollout/a}}]"


async def test_absent_kind_is_a_failure_only_if_a_workload_has_it_as_target(fake, examine):
    kinds = "ScaledObject, ScaledJob, LeaderWorkerSet, Rollout, InferenceService, InferenceSet, Workspace"
    assert one(await examine(more=ROLLOUT), "kinds").result == f"{kinds}; without none"
    fake.uninstall(ROLLOUTS)
    check = one(await examine(), "kinds")
    assert (check.status, check.result.partition("; ")[2]) == ("ok", "without Rollout")
    check = one(await examine(more=ROLLOUT), "kinds")
    assert (check.status, "argoproj.io/v1alpha1 Rollout" in check.remedy) == ("fail", True)


async def test_failed_access_review_is_no_missing_permission(fake, examine):
    fake.fail("SelfSubjectAccessReview", 500)
    checks = [check for check in await examine() if check.name.startswith("permission:")]
    assert {check.status for check in checks} == {"warn"}


async def test_cluster_without_keda_passes(fake, examine, statuses):
    fake.uninstall(SCALEDOBJECTS, SCALEDJOBS)
    checks = await examine()
    assert (one(checks, "KEDA").status, "not installed" in one(checks, "KEDA").result) == ("ok", True)
    assert EXTERNAL not in statuses(checks)


@pytest.mark.parametrize(
    ("service", "status"),
    [
        ({"namespace": "keda", "name": "keda-operator-metrics-apiserver"}, "ok"),
        ({"namespace": "monitoring", "name": "prometheus-adapter"}, "fail"),
        (None, "fail"),
    ],
)
async def test_external_metrics_api_must_be_kedas_without_the_metrics_api(fake, examine, service, status):
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
async def test_external_metrics_api_must_be_tidegates_with_the_metrics_api(fake, examine, service, status):
    if service is not None:
        fake.api_services["v1beta1.external.metrics.k8s.io"] = {"service": service}
    assert one(await examine(more=METRICS_API), EXTERNAL).status == status


async def test_provider_of_the_api_is_a_warning_without_a_configured_service(fake, examine):
    fake.api_services["v1beta1.external.metrics.k8s.io"] = {"service": {"namespace": "keda", "name": "x"}}
    held = one(await examine(more=METRICS_API.replace(", service: tidegate.tidegate", "")), EXTERNAL)
    assert (held.status, held.result) == ("warn", "Service keda/x")


async def test_lease_shows_the_leader_or_why_it_is_unreadable(fake, examine):
    assert one(await examine(more=PEERS), "Lease tidegate.tidegate").result == "no replica leads"
    fake.fail("Lease", 403)
    assert one(await examine(more=PEERS), "Lease tidegate.tidegate").status == "fail"


async def test_missing_permission_to_write_the_lease_is_a_failure(fake, examine):
    fake.may = lambda permission: (permission["resource"], permission["verb"]) != ("leases", "update")
    permission = one(
        await examine(more=PEERS), "permission: get, update leases.coordination.k8s.io tidegate in tidegate"
    )
    assert permission.result.startswith("may not update")
