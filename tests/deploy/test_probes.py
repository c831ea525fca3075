"""A hanging replica delays a wake-up by at most 15 s: the arithmetic for the installed probes.

KEDA's client sends no keepalive and sets no deadline. While the kernel of a stopped process acknowledges, KEDA waits.
Its streams and polls end when the kubelet kills the container.
"""

import pytest
import yaml

from scaler.api.http.health import STUCK_CHECKS
from scaler.api.keda.server import CHECK_PAUSE_S, CHECK_S
from tests.deploy.shared import DEPLOY, ci_values, the

BOUND_S = 15.0
# KEDA's delay after the first error of a stream; after later ones it is up to 60 s. An end with OK resets it.
KEDA_BACK_OFF_S = 4.0
# The kubelet's minimum time before SIGKILL, whatever the probe specifies.
KUBELETS_LEAST_GRACE_S = 2.0


def container_of(deployment):
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return container


def base():
    return container_of(yaml.safe_load((DEPLOY / "kustomize/base/deployment.yaml").read_text(encoding="utf-8")))


@pytest.fixture(params=["chart", "kustomize"])
def container(request, render):
    return container_of(the(render({"replicas": 2}), "Deployment")) if request.param == "chart" else base()


def test_frozen_replica_is_killed_and_keda_reconnected_within_15_s(container):
    probe = container["livenessProbe"]
    # The process froze just after a successful probe.
    detected = probe["periodSeconds"] * probe["failureThreshold"] + probe["timeoutSeconds"]
    killed = detected + max(probe["terminationGracePeriodSeconds"], KUBELETS_LEAST_GRACE_S)
    assert (detected, killed) == (8, 10)
    assert killed + KEDA_BACK_OFF_S <= BOUND_S


def test_replica_with_a_hanging_grpc_server_is_killed_and_keda_reconnected_within_15_s(container):
    probe = container["livenessProbe"]
    unanswered = CHECK_PAUSE_S + STUCK_CHECKS * CHECK_S
    # /livez responds, so no probe waits for its timeout.
    detected = unanswered + probe["periodSeconds"] * probe["failureThreshold"]
    assert detected + max(probe["terminationGracePeriodSeconds"], KUBELETS_LEAST_GRACE_S) + KEDA_BACK_OFF_S <= BOUND_S


def test_service_excludes_the_pod_before_the_container_is_killed(container):
    """KEDA's next connection must not go to the pod that has just been killed."""
    ready, live = container["readinessProbe"], container["livenessProbe"]
    unready = ready["periodSeconds"] * ready["failureThreshold"] + ready["timeoutSeconds"]
    assert unready + ready["periodSeconds"] <= live["periodSeconds"] * live["failureThreshold"] + live["timeoutSeconds"]


def test_stall_of_five_seconds_kills_no_container(container):
    """A reload of 10,000 workloads blocks the event loop that long."""
    probe = container["livenessProbe"]
    assert probe["periodSeconds"] * (probe["failureThreshold"] - 1) + probe["timeoutSeconds"] > 5


@pytest.mark.parametrize("values", ci_values())
def test_graceful_end_of_a_pod_is_no_shorter_than_the_probes_grace(render, values):
    pod = the(render(values), "Deployment")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] >= 30
    assert pod["containers"][0]["livenessProbe"]["terminationGracePeriodSeconds"] == 2
