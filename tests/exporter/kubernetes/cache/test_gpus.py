"""The GPUs of a pod are counted by Kubernetes' rules for containers, init containers and sidecars."""

import pytest

from exporter.kubernetes.decode import gpus_of, gpus_of_pod
from exporter.kubernetes.fields import FieldError, Fields


def container(number, *, always=False, gpu="nvidia.com/gpu", of="limits"):
    return {"resources": {of: {gpu: number, "cpu": "4"}}, **({"restartPolicy": "Always"} if always else {})}


@pytest.mark.parametrize(
    ("spec", "held"),
    [
        ({}, {}),
        ({"containers": [{"resources": {"limits": {"cpu": "1"}}}]}, {}),
        ({"containers": [container("1"), container("2")]}, {"nvidia.com/gpu": 3}),
        ({"containers": [container("1", of="requests")]}, {"nvidia.com/gpu": 1}),
        ({"containers": [container("0")]}, {}),
        # Init containers run one after the other, before the rest: 2 at most, then 1.
        ({"initContainers": [container("2"), container("1")], "containers": [container("1")]}, {"nvidia.com/gpu": 2}),
        # A sidecar keeps running: 1 + 1.
        ({"initContainers": [container("1", always=True)], "containers": [container("1")]}, {"nvidia.com/gpu": 2}),
        # A sidecar that started before an init container runs beside it: 1 + 3, then 1 + 1.
        (
            {"initContainers": [container("1", always=True), container("3")], "containers": [container("1")]},
            {"nvidia.com/gpu": 4},
        ),
        # One that starts after it does not: 3, then 1 + 1.
        (
            {"initContainers": [container("3"), container("1", always=True)], "containers": [container("1")]},
            {"nvidia.com/gpu": 3},
        ),
        (
            {"containers": [container(1, gpu="nvidia.com/mig-1g.5gb"), container(4, gpu="amd.com/gpu")]},
            {"nvidia.com/mig-1g.5gb": 1, "amd.com/gpu": 4},
        ),
    ],
)
def test_pod_holds_the_largest_number_that_it_needs_at_once(spec, held):
    assert held == gpus_of_pod(Fields(spec))


@pytest.mark.parametrize(
    ("name", "is_gpu"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/gpu.shared", True),
        ("nvidia.com/mig-1g.10gb", True),
        ("nvidia.com/mig-1g.5gb.shared", True),
        ("amd.com/gpu", True),
        ("amd.com/cpx_nps4", True),
        ("nvidia.com/gpumem", False),
        ("nvidia.com/gpucores", False),
        ("nvidia.com/gpumem-percentage", False),
        ("example.com/gpu", False),
        ("cpu", False),
    ],
)
def test_gpu_memory_resources_are_no_gpus(name, is_gpu):
    assert ({name: 8} if is_gpu else {}) == gpus_of(Fields({name: "8"}))


def test_quantity_may_have_a_k_suffix():
    assert gpus_of(Fields({"nvidia.com/gpu.shared": "1k"})) == {"nvidia.com/gpu.shared": 1000}


@pytest.mark.parametrize("value", ["", "-1", -1, "1.5", 1.5, True, None, "٣", "1e3", "9" * 40, [], "1Ki"])
def test_fractional_quantity_is_refused(value):
    with pytest.raises(FieldError, match="whole quantity"):
        gpus_of(Fields({"nvidia.com/gpu": value}))
