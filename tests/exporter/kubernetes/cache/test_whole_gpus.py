"""Devices of pods and nodes are whole GPUs, MIG slices or replicas of a shared GPU, as the node's labels say."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.kubernetes.gpus import capacity, parts_of
from exporter.kubernetes.objects import Node, Pod
from exporter.kubernetes.resources import NODES
from exporter.model import GpuPart, PodKey
from tests.fakes import objects as api

from .conftest import T0

A100, GPU = "NVIDIA-A100-SXM4-40GB", "nvidia.com/gpu"


def node(gpus, product=None, **labels):
    """A node `n`. labels: count=2 is `nvidia.com/gpu.count`."""
    found = {f"nvidia.com/gpu.{name}": str(value) for name, value in labels.items()}
    labelled = found | ({f"{GPU}.product": product} if product else {})
    return Node("n", ready=True, schedulable=True, gpus=gpus, labels=labelled)


def held(by, of):
    return parts_of([Pod(PodKey("ai", "chat-0"), "u", node="n", gpus=by)], {"n": of}.get)


@pytest.mark.parametrize(
    ("by", "of", "whole", "total"),
    [
        ({GPU: 2}, node({GPU: 8}, A100, count=8, replicas=1), 2.0, 8.0),
        ({GPU: 2}, node({GPU: 8}), 2.0, 8.0),
        ({GPU: 3}, node({GPU: 8}, "Tesla-T4-SHARED", count=2, replicas=4), 0.75, 2.0),
        ({f"{GPU}.shared": 1}, node({f"{GPU}.shared": 4}, "Tesla-T4", count=1, replicas=4), 0.25, 1.0),
        ({"nvidia.com/mig-3g.20gb": 1}, node({"nvidia.com/mig-3g.20gb": 2}, A100, count=1), 3 / 7, 1.0),
        ({"nvidia.com/mig-1g.5gb": 3}, node({"nvidia.com/mig-1g.5gb": 7, GPU: 1}, A100, count=2), 3 / 7, 2.0),
        ({"nvidia.com/mig-2g.12gb": 1}, node({"nvidia.com/mig-2g.12gb": 2}, "NVIDIA-A30", count=1), 0.5, 1.0),
        ({GPU: 2}, node({GPU: 14}, f"{A100}-MIG-1g.5gb", count=14, replicas=1), 2 / 7, 2.0),
        ({"amd.com/gpu": 1}, node({"amd.com/gpu": 8}), 1.0, 8.0),
        ({"amd.com/cpx_nps4": 2}, node({"amd.com/cpx_nps4": 8}), 0.25, 1.0),
        ({GPU: 1}, node({GPU: 8}, A100, count="many", replicas="-4"), 1.0, 8.0),
    ],
)
def test_devices_are_parts_of_whole_gpus(by, of, whole, total):
    (part,) = held(by, of)
    assert part.whole == pytest.approx(whole)
    assert capacity(of).whole == total


def test_pods_on_an_unknown_node_hold_whole_gpus_of_an_unknown_model():
    assert parts_of([Pod(PodKey("ai", "chat-0"), "u", node="gone", gpus={GPU: 2})], {}.get) == (GpuPart(None, 2.0),)


PROFILES = {1: "1g.5gb", 2: "2g.10gb", 3: "3g.20gb", 4: "4g.20gb", 7: "7g.40gb"}


@given(st.lists(st.one_of(st.just(None), st.lists(st.sampled_from(sorted(PROFILES)), max_size=7)), max_size=16))
def test_all_devices_of_a_node_are_never_more_than_its_gpus(gpus):
    """gpus: None is a whole one; a list has the slices of its MIG instances, as far as they fit."""
    devices = {GPU: sum(each is None for each in gpus)}
    for layout in gpus:
        free = 7
        for size in layout or ():
            if size <= free:
                free -= size
                name = f"nvidia.com/mig-{PROFILES[size]}"
                devices[name] = devices.get(name, 0) + 1
    of = node(devices, A100, count=len(gpus))
    whole = sum(part.whole for part in held(devices, of))
    assert whole <= capacity(of).whole + 1e-9
    assert capacity(of).whole == len(gpus)


def test_count_has_the_model_of_the_nodes_of_its_pods_and_follows_their_labels(apply, ref):
    labels = {"nvidia.com/gpu.product": "Tesla-T4-SHARED", "nvidia.com/gpu.count": "2", "nvidia.com/gpu.replicas": "4"}
    of = partial(api.thing, "Node", "n", None, status={"allocatable": {GPU: "8"}})
    cluster = apply(of(), api.stateful_set("s"), api.pod("s-0", owner=("StatefulSet", "s"), node="n", gpus=1))
    target = ref("StatefulSet", "s")
    assert cluster.count(target, T0).parts == (GpuPart(None, 1.0),)
    cluster.take_uncounted(T0)
    apply(of(labels=labels | {"kubernetes.io/arch": "amd64"}))
    assert cluster.take_uncounted(T0) is None, "every target is counted again"
    assert cluster.take_uncounted(T0) == frozenset()
    assert cluster.count(target, T0).parts == (GpuPart("Tesla-T4-SHARED", 0.25),)
    assert cluster.node_gpus(T0) == (GpuPart("Tesla-T4-SHARED", 2.0),)
    apply(api.thing("Node", "m", None, status={"allocatable": {GPU: "1"}}), api.thing("Node", "cpu", None))
    assert cluster.node_gpus(T0) == (GpuPart(None, 1.0), GpuPart("Tesla-T4-SHARED", 2.0))
    assert cluster.node_gpus(T0 + 1e6) is not None
    cluster.mark_lost(NODES, T0)
    assert cluster.node_gpus(T0 + 1e6) is None, "unknown is not none"


def test_labels_of_a_scale_target_may_name_its_team(apply, ref):
    apply(api.deployment("chat", labels={"team": "search"}))
    cluster = apply()
    assert cluster.labels_of(ref("Deployment", "chat")) == {"team": "search"}
    assert cluster.labels_of(ref("Deployment", "gone")) == {}
