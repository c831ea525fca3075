"""A replica that hangs delays a wake-up by at most 15 s: the arithmetic, on what is installed.

KEDA's client sends no keepalive and sets no deadline. While the kernel of a stopped process acknowledges, KEDA waits.
Its streams and polls end when the kubelet kills the container.
"""

import pytest
import yaml

from scaler.api.http.health import STUCK_CHECKS
from scaler.api.keda.server import CHECK_PAUSE_S, CHECK_S
from tests.deploy.shared import DEPLOY, ci_values, the

BOUND_S = 15.0
# After the first error of a stream KEDA waits so long, after later ones up to 60 s; an end with OK resets that.
KEDA_BACK_OFF_S = 4.0
# The kubelet gives every container this much before SIGKILL, whatever the probe says.
KUBELETS_LEAST_GRACE_S = 2.0


def container_of(deployment):
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return container


def base():
    return container_of(yaml.safe_load((DEPLOY / "kustomize/base/deployment.yaml").read_text(encoding="utf-8")))


@pytest.fixture(params=["chart", "kustomize"])
def container(request, render):
    return container_of(the(render({"replicas": 2}), "Deployment")) if request.param == "chart" else base()


def test_a_frozen_replica_is_killed_and_keda_reconnected_within_15_s(container):
    probe = container["livenessProbe"]
    # The process froze just after a probe was answered, and no later one is.
    detected = probe["periodSeconds"] * probe["failureThreshold"] + probe["timeoutSeconds"]
    killed = detected + max(probe["terminationGracePeriodSeconds"], KUBELETS_LEAST_GRACE_S)
    assert (detected, killed) == (8, 10)
    assert killed + KEDA_BACK_OFF_S <= BOUND_S


def test_a_replica_whose_grpc_server_hangs_is_killed_and_keda_reconnected_within_15_s(container):
    probe = container["livenessProbe"]
    unanswered = STUCK_CHECKS * (CHECK_PAUSE_S + CHECK_S)
    # /livez answers, so no probe waits for its timeout.
    detected = unanswered + probe["periodSeconds"] * probe["failureThreshold"]
    assert detected + max(probe["terminationGracePeriodSeconds"], KUBELETS_LEAST_GRACE_S) + KEDA_BACK_OFF_S <= BOUND_S


def test_the_service_leads_elsewhere_before_the_container_is_killed(container):
    """So that KEDA's next connection does not go to the pod that has just been killed."""
    ready, live = container["readinessProbe"], container["livenessProbe"]
    unready = ready["periodSeconds"] * ready["failureThreshold"] + ready["timeoutSeconds"]
    assert unready + ready["periodSeconds"] <= live["periodSeconds"] * live["failureThreshold"] + live["timeoutSeconds"]


def test_a_stall_of_five_seconds_kills_nothing(container):
    """A reload of 10,000 workloads takes the event loop that long."""
    probe = container["livenessProbe"]
    assert probe["periodSeconds"] * (probe["failureThreshold"] - 1) + probe["timeoutSeconds"] > 5


@pytest.mark.parametrize("values", ci_values())
def test_the_graceful_end_of_a_pod_is_no_shorter_for_the_probes_grace(render, values):
    pod = the(render(values), "Deployment")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] >= 30
    assert pod["containers"][0]["livenessProbe"]["terminationGracePeriodSeconds"] == 2
