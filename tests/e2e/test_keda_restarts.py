"""KEDA's operator restarts while Tidegate is down: up to KEDA 2.19 its HPA then uses cpu for a while."""

import os
import subprocess

import pytest

from .control_plane import KEDA_RESTART
from .tenant import QUICK
from .waiting import until

TAKES = ("keda",)
A_WHILE_S = 25.0


def restart(api):
    """Runs the environment's command, or deletes the operator's pods, which its Deployment replaces."""
    if KEDA_RESTART in os.environ:
        subprocess.run(os.environ[KEDA_RESTART], shell=True, check=True, stdin=subprocess.DEVNULL)
        return
    operators = api.items("/api/v1/pods", labelSelector="app=keda-operator")
    if not operators:
        pytest.skip(f"no pod is labelled app=keda-operator, and {KEDA_RESTART} names no command that restarts KEDA")
    for pod in operators:
        metadata = pod["metadata"]
        api.delete(f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}")


def test_keda_restart_while_the_daemon_is_down_scales_nothing_and_both_follow_again(tenant, page, tidegate, api):
    tenant.gateway("front", page.epp(held=0, ready=1))
    tenant.deployment("llama", page.vllm, requests=70, replicas=2)
    tenant.scaled_object("llama", minimum=0, maximum=9, cooldown=120, gateway="front", **QUICK)
    tenant.until_replicas("llama", 5)
    tenant.stays_at("llama", 5, 5)
    tidegate.kill()
    restart(api)
    tenant.stays_at("llama", 5, A_WHILE_S)
    tidegate.start()
    tenant.stays_at("llama", 5, A_WHILE_S)
    until(
        lambda: metrics(tenant, "llama"), lambda kinds: kinds == ["External"], describe=lambda: tenant.describe("llama")
    )
    tenant.set_load("llama", requests=100)
    tenant.until_replicas("llama", 7)


def metrics(tenant, name):
    return [metric["type"] for metric in tenant.hpa(f"keda-hpa-{name}")["spec"]["metrics"]]
