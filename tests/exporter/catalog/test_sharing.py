"""A shared GPU is attributed to its pods, and counted once."""

from math import isnan

import pytest

from exporter.model import Attribution, Part, PodKey, Quantity

Q = Quantity
MIB = 2.0**20


def line(field, value, **labels):
    inner = ",".join(f'{name}="{text}"' for name, text in ({"gpu": "0", "UUID": "g"} | labels).items())
    return f"DCGM_FI_{field}{{{inner}}} {value}\n"


def shared(field, *values):
    """Returns one copy or part of a shared GPU per pod `p0`, `p1` …"""
    return "".join(
        line(field, value, vgpu=str(n), namespace="ai", pod=f"p{n}", container="c") for n, value in enumerate(values)
    )


@pytest.mark.parametrize("labels", [{"pod": "", "namespace": "", "container": ""}, {}])
def test_empty_pod_label_is_no_pod(read, gpu, labels):
    assert gpu(read(line("DEV_GPU_UTIL", 0, **labels)), "g").pods == ()
    assert gpu(read(line("DEV_GPU_UTIL", 0, **labels)), "g").attribution is Attribution.NONE


def test_one_pod_on_a_whole_gpu_is_exclusive(read, gpu):
    samples = read(line("DEV_GPU_UTIL", 0, namespace="ai", pod="p-0", container="main", pod_uid=""))
    assert gpu(samples, "g").pods == (PodKey("ai", "p-0"),)
    assert gpu(samples, "g").attribution is Attribution.EXCLUSIVE


def test_two_containers_of_one_pod_are_one_pod(read, gpu, cell):
    text = line("DEV_POWER_USAGE", 300, namespace="ai", pod="p", container="a")
    text += line("DEV_POWER_USAGE", 300, namespace="ai", pod="p", container="b")
    assert gpu(read(text), "g").attribution is Attribution.EXCLUSIVE
    assert cell(read(text), "g", Q.GPU_POWER) == 300.0


def test_copies_for_each_pod_of_a_shared_gpu_are_counted_once(read, cell, gpu):
    text = shared("DEV_GPU_UTIL", 90, 90, 90) + shared("DEV_FB_USED", 2000, 2000, 2000)
    text += shared("DEV_POWER_USAGE", 300, 300, 300)
    samples = read(text)
    assert cell(samples, "g", Q.GPU_UTILIZATION) == 0.9
    assert cell(samples, "g", Q.GPU_MEMORY_USED) == 2000 * MIB
    assert cell(samples, "g", Q.GPU_POWER) == 300.0
    assert gpu(samples, "g").attribution is Attribution.DEVICE
    assert gpu(samples, "g").pods == (PodKey("ai", "p0"), PodKey("ai", "p1"), PodKey("ai", "p2"))


def test_copies_for_each_batch_job_are_counted_once(read, cell, gpu):
    text = line("DEV_POWER_USAGE", 300, hpc_job="1") + line("DEV_POWER_USAGE", 300, hpc_job="2")
    assert cell(read(text), "g", Q.GPU_POWER) == 300.0
    assert gpu(read(text), "g").attribution is Attribution.NONE


def test_invalid_copy_does_not_affect_the_value(read, cell):
    text = shared("DEV_POWER_USAGE", 300, 300).replace('vgpu="0"', 'vgpu="0') + shared("PROF_GR_ENGINE_ACTIVE", 0.5)
    assert cell(read(text), "g", Q.GPU_POWER) == 300.0


def test_device_series_beside_per_pod_series_is_the_gpus_value(read, cell, gpu):
    text = line("DEV_GPU_UTIL", 90) + shared("DEV_GPU_UTIL", 60, 30)
    text += line("DEV_FB_USED", 20000) + shared("DEV_FB_USED", 12000, 7000)
    text += shared("DEV_FB_FREE", 4000, 4000) + shared("DEV_FB_RESERVED", 0, 0)
    samples = read(text)
    assert cell(samples, "g", Q.GPU_UTILIZATION) == 0.9
    assert cell(samples, "g", Q.GPU_MEMORY_USED) == 20000 * MIB
    assert cell(samples, "g", Q.GPU_MEMORY_TOTAL) == 24000 * MIB
    assert gpu(samples, "g").attribution is Attribution.PROCESS
    assert gpu(samples, "g").pods == (PodKey("ai", "p0"), PodKey("ai", "p1"))


def test_per_pod_zeros_on_a_busy_device_are_rejected(read, cell, gpu):
    """Without hostPID, the exporter cannot map processes to pods and exposes 0 for every pod."""
    samples = read(line("DEV_GPU_UTIL", 90) + shared("DEV_GPU_UTIL", 0, 0))
    assert cell(samples, "g", Q.GPU_UTILIZATION) == 0.9
    assert gpu(samples, "g").attribution is Attribution.DEVICE


def test_per_pod_zeros_on_a_busy_device_are_rejected_though_memory_adds_up(read, gpu):
    text = line("DEV_GPU_UTIL", 90) + shared("DEV_GPU_UTIL", 0, 0)
    text += line("DEV_FB_USED", 2000) + shared("DEV_FB_USED", 900, 800)
    assert gpu(read(text), "g").attribution is Attribution.DEVICE


def test_parts_larger_than_their_device_are_rejected(read, gpu):
    samples = read(line("DEV_GPU_UTIL", 50) + shared("DEV_GPU_UTIL", 50, 50))
    assert gpu(samples, "g").attribution is Attribution.DEVICE


def test_parts_of_an_idle_device_prove_nothing(read, gpu):
    samples = read(line("DEV_GPU_UTIL", 0) + shared("DEV_GPU_UTIL", 0, 0))
    assert gpu(samples, "g").attribution is Attribution.DEVICE


def test_memory_by_process_proves_that_processes_have_pods(read, gpu):
    text = line("DEV_GPU_UTIL", 0) + shared("DEV_GPU_UTIL", 0, 0)
    text += line("DEV_FB_USED", 2000) + shared("DEV_FB_USED", 900, 800)
    assert gpu(read(text), "g").attribution is Attribution.PROCESS


def test_parts_without_their_device_line_are_not_the_device(read, cell, gpu):
    """The device's GPU_UTIL line is invalid. FB_USED shows that this page splits values by process."""
    text = "DCGM_FI_DEV_GPU_UTIL{UUID= 90\n" + shared("DEV_GPU_UTIL", 0, 0)
    text += line("DEV_FB_USED", 2000) + shared("DEV_FB_USED", 900, 800)
    samples = read(text)
    assert isnan(cell(samples, "g", Q.GPU_UTILIZATION))
    assert cell(samples, "g", Q.GPU_MEMORY_USED) == 2000 * MIB
    assert len(samples.dropped) == 1


def test_per_pod_values_that_differ_are_no_copies(read, cell):
    samples = read(shared("DEV_GPU_UTIL", 60, 30) + shared("DEV_POWER_USAGE", 300, 300))
    assert isnan(cell(samples, "g", Q.GPU_UTILIZATION))
    assert cell(samples, "g", Q.GPU_POWER) == 300.0


def test_single_pod_on_a_shared_device_is_not_exclusive(read, gpu):
    assert gpu(read(shared("DEV_GPU_UTIL", 90)), "g").attribution is Attribution.DEVICE


def test_pods_that_share_a_mig_instance_have_no_exclusive_gpu(read, gpu):
    text = line("DEV_FB_USED", 900, GPU_I_ID="3", GPU_I_PROFILE="1g.5gb", vgpu="0", namespace="ai", pod="a")
    text += line("DEV_FB_USED", 900, GPU_I_ID="3", GPU_I_PROFILE="1g.5gb", vgpu="1", namespace="ai", pod="b")
    assert gpu(read(text), "g", "3").attribution is Attribution.DEVICE


def test_attribution_follows_the_values_of_each_response(page, gpu):
    """Two pages with one layout: the parts add up on the first and not on the second."""
    from exporter.catalog import compile_plan  # noqa: PLC0415

    valid = page(line("DEV_GPU_UTIL", 90) + shared("DEV_GPU_UTIL", 60, 30))
    invalid = page(line("DEV_GPU_UTIL", 90) + shared("DEV_GPU_UTIL", 0, 0))
    plan = compile_plan("dcgm", valid.layout)
    assert gpu(plan.read(valid, 0.0), "g").attribution is Attribution.PROCESS
    assert gpu(plan.read(invalid, 0.0), "g").attribution is Attribution.DEVICE


def test_pod_read_through_prometheus_is_the_exported_one(read, gpu):
    exporter = {"job": "dcgm", "instance": "10.0.0.1:9400", "namespace": "gpu-operator", "pod": "gpu-metrics-x"}
    text = line("DEV_GPU_UTIL", 90, exported_namespace="ai", exported_pod="p-0", **exporter)
    text += line("DEV_GPU_UTIL", 0, UUID="free", **exporter)
    samples = read(text)
    assert gpu(samples, "g").pods == (PodKey("ai", "p-0"),)
    assert gpu(samples, "free").pods == ()


def test_pod_of_the_exporter_holds_no_gpu(read, gpu):
    exporter = {"job": "dcgm", "instance": "10.0.0.1:9400", "namespace": "gpu-operator"}
    samples = read(line("DEV_GPU_UTIL", 0, pod="nvidia-dcgm-exporter-q28k4", **exporter))
    assert gpu(samples, "g").pods == ()


def test_labels_of_the_old_namespace_are_read(read, gpu):
    text = 'DCGM_FI_DEV_GPU_UTIL{gpu="0",uuid="g",container_name="c",pod_namespace="ai",pod_name="p-0"} 5\n'
    assert gpu(read(text), "g").pods == (PodKey("ai", "p-0"),)
    through_prometheus = text.replace('uuid="g"', 'uuid="g",namespace="gpu-operator",pod="gpu-metrics-x"')
    assert gpu(read(through_prometheus), "g").pods == (PodKey("ai", "p-0"),)


def test_replica_belongs_to_its_device(read, cell, gpu):
    """`GPU-1::3` is the device plugin's name for the third share of GPU-1."""
    text = "".join(
        line("PROF_GR_ENGINE_ACTIVE", 0.5, UUID=f"g::{n}", namespace="ai", pod=f"p{n}", container="c") for n in range(2)
    )
    samples = read(text)
    assert [subject.uuid for subject in samples.subjects] == ["g"]
    assert cell(samples, "g", Q.GPU_ENGINE_ACTIVE) == 0.5
    assert gpu(samples, "g").attribution is Attribution.DEVICE
    assert gpu(samples, "g").pods == (PodKey("ai", "p0"), PodKey("ai", "p1"))


def test_single_replica_is_a_share_of_its_device(read, gpu):
    samples = read(line("DEV_GPU_UTIL", 90, UUID="g::0", namespace="ai", pod="p", container="c"))
    assert gpu(samples, "g").attribution is Attribution.DEVICE


def test_parts_that_add_up_are_attributed_to_their_pods(read, gpu):
    text = line("DEV_GPU_UTIL", 90) + shared("DEV_GPU_UTIL", 60, 30)
    text += line("DEV_FB_USED", 2000) + shared("DEV_FB_USED", 1200, 700)
    assert gpu(read(text), "g").parts == (
        Part(PodKey("ai", "p0"), 0.6, 1200 * MIB),
        Part(PodKey("ai", "p1"), 0.3, 700 * MIB),
    )


def test_containers_of_a_pod_are_one_part(read, gpu):
    text = line("DEV_GPU_UTIL", 90) + shared("DEV_GPU_UTIL", 60, 20)
    text += line("DEV_GPU_UTIL", 10, vgpu="2", namespace="ai", pod="p1", container="d")
    first, second = gpu(read(text), "g").parts
    assert (first.utilization, second.utilization) == (0.6, pytest.approx(0.3))
    assert isnan(first.memory)


@pytest.mark.parametrize("parts", [(0, 0), (90, 90)])
def test_rejected_parts_are_attributed_to_no_pod(read, gpu, parts):
    assert gpu(read(line("DEV_GPU_UTIL", 90) + shared("DEV_GPU_UTIL", *parts)), "g").parts == ()


def test_copies_are_no_parts(read, gpu):
    assert gpu(read(shared("DEV_GPU_UTIL", 90, 90)), "g").parts == ()
