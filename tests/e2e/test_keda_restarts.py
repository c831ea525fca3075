"""KEDA's operator starts anew while Tidegate is down: up to KEDA 2.19 its HPA then asks for cpu, for a while."""

import os
import subprocess

import pytest

from .control_plane import KEDA_RESTART
from .place import QUICK
from .waiting import until

A_WHILE_S = 25.0


def restart(api):
    """By the command of the environment, else by deleting the operator's pods, which a Deployment replaces."""
    if KEDA_RESTART in os.environ:
        subprocess.run(os.environ[KEDA_RESTART], shell=True, check=True, stdin=subprocess.DEVNULL)
        return
    operators = api.items("/api/v1/pods", labelSelector="app=keda-operator")
    if not operators:
        pytest.skip(f"no pod is labelled app=keda-operator, and {KEDA_RESTART} names no command that restarts KEDA")
    for pod in operators:
        metadata = pod["metadata"]
        api.delete(f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}")


def test_keda_restarted_while_the_daemon_is_down_scales_nothing_and_both_follow_again(place, page, tidegate, api):
    place.gateway("front", page.epp(held=0, ready=1))
    place.deployment("llama", page.vllm, requests=70, replicas=2)
    place.scaled_object("llama", minimum=0, maximum=9, gateway="front", **QUICK)
    place.until_replicas("llama", 5)
    place.stays_at("llama", 5, 5)
    tidegate.kill()
    restart(api)
    place.stays_at("llama", 5, A_WHILE_S)
    tidegate.start()
    place.stays_at("llama", 5, A_WHILE_S)
    until(lambda: metrics(place, "llama"), lambda kinds: kinds == ["External"], seen=lambda: place.seen("llama"))
    place.has("llama", requests=100)
    place.until_replicas("llama", 7)


def metrics(place, name):
    return [metric["type"] for metric in place.hpa(f"keda-hpa-{name}")["spec"]["metrics"]]
