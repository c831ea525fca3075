"""GPUs are read from exporters other than dcgm-exporter."""

from math import isnan

import pytest

from exporter.catalog import GPU_KINDS, KINDS
from exporter.model import Attribution, PodKey, Quantity

Q = Quantity

SMI = """
    nvidia_smi_gpu_info{index="0",name="NVIDIA L40S",uuid="u"} 1
    nvidia_smi_utilization_gpu_ratio{uuid="u"} 0.57
    nvidia_smi_utilization_memory_ratio{uuid="u"} 0.09
    nvidia_smi_memory_used_bytes{uuid="u"} 1.048576e+06
    nvidia_smi_memory_total_bytes{uuid="u"} 4.8305799168e+10
    nvidia_smi_power_draw_watts{uuid="u"} 144.97
    nvidia_smi_power_draw_instant_watts{uuid="u"} 127.67
    nvidia_smi_temperature_gpu{uuid="u"} 63
    nvidia_smi_command_exit_code 0
    """


def test_nvidia_smi_exposes_ratios_and_bytes(read, cell, gpu):
    samples = read(SMI)
    assert samples.kind == "nvidia_gpu_exporter"
    assert gpu(samples, "u").model == "NVIDIA L40S"
    assert gpu(samples, "u").attribution is Attribution.NONE
    assert cell(samples, "u", Q.GPU_UTILIZATION) == 0.57
    assert cell(samples, "u", Q.GPU_MEMORY_USED) == 2.0**20
    assert cell(samples, "u", Q.GPU_MEMORY_TOTAL) == 48305799168.0
    assert cell(samples, "u", Q.GPU_POWER) == 144.97
    assert cell(samples, "u", Q.GPU_TEMPERATURE) == 63.0


def test_utilization_of_nvidia_smi_is_unknown_with_mig(read, cell):
    samples = read("\n".join(line for line in SMI.splitlines() if "utilization" not in line))
    assert isnan(cell(samples, "u", Q.GPU_UTILIZATION))
    assert cell(samples, "u", Q.GPU_MEMORY_USED) == 2.0**20


def line(family, value, labels):
    pairs = ",".join(f'{name}="{text}"' for name, text in labels.items())
    return f"{family}{{{pairs}}} {value}\n"


def amd(family, value, **labels):
    labels = {"gpu_uuid": "u", "gpu_id": "0", "gpu_partition_id": "0", "card_series": "MI300X",
              "namespace": "", "pod": "", "hostname": "n", **labels}  # fmt: skip
    return line(family, value, labels)


@pytest.mark.parametrize("prefix", ["", "amd_"])
def test_amd_percentages_mebibytes_and_microjoules_become_ratios_bytes_and_joules(read, cell, gpu, prefix):
    samples = read(
        amd(f"{prefix}gpu_gfx_activity", 57)
        + amd(f"{prefix}gpu_umc_activity", 25)
        + amd(f"{prefix}gpu_used_vram", 1024)
        + amd(f"{prefix}gpu_total_vram", 196592)
        + amd(f"{prefix}gpu_package_power", 750)
        + amd(f"{prefix}gpu_energy_consumed", 3_000_000)
        + amd(f"{prefix}gpu_junction_temperature", 60)
    )
    assert samples.kind == "amd"
    assert gpu(samples, "u").model == "MI300X"
    assert cell(samples, "u", Q.GPU_UTILIZATION) == 0.57
    assert cell(samples, "u", Q.GPU_DRAM_ACTIVE) == 0.25
    assert cell(samples, "u", Q.GPU_MEMORY_USED) == 2.0**30
    assert cell(samples, "u", Q.GPU_MEMORY_TOTAL) == 196592 * 2.0**20
    assert cell(samples, "u", Q.GPU_POWER) == 750.0
    assert cell(samples, "u", Q.GPU_ENERGY) == 3.0
    assert cell(samples, "u", Q.GPU_TEMPERATURE) == 60.0


def test_unknown_amd_activity_is_no_full_load(read, cell):
    assert isnan(cell(read(amd("gpu_gfx_activity", 65535)), "u", Q.GPU_UTILIZATION))


def test_shared_amd_gpu_is_one_gpu(read, cell, gpu):
    samples = read(
        amd("gpu_gfx_activity", 57, namespace="ai", pod="a") + amd("gpu_gfx_activity", 57, namespace="ai", pod="b")
    )
    assert gpu(samples, "u").attribution is Attribution.DEVICE
    assert gpu(samples, "u").pods == (PodKey("ai", "a"), PodKey("ai", "b"))
    assert cell(samples, "u", Q.GPU_UTILIZATION) == 0.57


def test_amd_gpu_of_one_pod_is_exclusive(read, gpu):
    held = gpu(read(amd("gpu_gfx_activity", 57, namespace="ai", pod="a")), "u")
    assert (held.attribution, held.pods) == (Attribution.EXCLUSIVE, (PodKey("ai", "a"),))


def test_series_of_one_gpu_with_different_labels_are_one_gpu(read, gpu):
    samples = read(
        amd("gpu_gfx_activity", 57, namespace="ai", pod="a")
        + amd("gpu_package_power", 140, card_series="", hostname="")
        + intel("xpum_engine_ratio", 0.5)
    )
    assert len(samples.subjects) == 1
    assert (gpu(samples, "u").model, gpu(samples, "u").pods) == ("MI300X", (PodKey("ai", "a"),))
    assert len(read(intel("xpum_engine_ratio", 0.5) + intel("xpum_power_watts", 9, dev_name="")).subjects) == 1


def test_amd_gpu_without_a_uuid_has_its_serial_number_or_its_id(read):
    line = 'gpu_gfx_activity{{gpu_id="3",{}hostname="n"}} 5\n'
    assert [each.uuid for each in read(line.format('serial_number="SN",')).subjects] == ["SN"]
    assert [each.uuid for each in read(line.format('gpu_uuid="",')).subjects] == ["3"]


def test_amd_gpu_read_through_prometheus_is_not_the_exporters(read, gpu):
    exporter = {"namespace": "gpu", "pod": "default-metrics-exporter-vvvkm"}
    samples = read(
        amd("gpu_gfx_activity", 1, **exporter)
        + amd("gpu_gfx_activity", 2, gpu_uuid="v", **exporter, exported_namespace="ai", exported_pod="a")
    )
    assert gpu(samples, "u").pods == ()
    assert gpu(samples, "v").pods == (PodKey("ai", "a"),)
    assert gpu(read(amd("gpu_gfx_activity", 1, **exporter)), "u").pods == ()


def test_zeros_of_an_amd_partition_are_unknown_and_its_memory_is_kept(read, cell):
    samples = read(
        amd("gpu_gfx_activity", 90)
        + amd("gpu_gfx_activity", 0, gpu_partition_id="3")
        + amd("gpu_package_power", 0, gpu_partition_id="3")
        + amd("gpu_used_vram", 7, gpu_partition_id="3")
        + amd("gpu_total_vram", 8, gpu_partition_id="3")
    )
    assert cell(samples, "u", Q.GPU_UTILIZATION) == 0.9
    assert isnan(cell(samples, ("u", "3"), Q.GPU_UTILIZATION))
    assert isnan(cell(samples, ("u", "3"), Q.GPU_POWER))
    assert cell(samples, ("u", "3"), Q.GPU_MEMORY_USED) == 7 * 2.0**20
    assert cell(samples, ("u", "3"), Q.GPU_MEMORY_TOTAL) == 8 * 2.0**20


def test_partitioned_amd_gpu_has_no_activity(read, cell):
    page = amd("gpu_gfx_activity", 0, gpu_compute_partition_type="cpx") + amd("gpu_used_vram", 5)
    assert isnan(cell(read(page), "u", Q.GPU_UTILIZATION))
    page = amd("gpu_gfx_activity", 40, gpu_compute_partition_type="spx")
    assert cell(read(page), "u", Q.GPU_UTILIZATION) == 0.4


def intel(family, value, **labels):
    labels = {"uuid": "u", "dev_name": "Flex 170", "kube_namespace": "ai", "kube_pod": "a", **labels}
    return line(family, value, labels)


def test_intel_tiles_do_not_count_beside_their_device(read, cell, gpu):
    samples = read(
        intel("xpum_engine_ratio", 0.5)
        + intel("xpum_engine_ratio", 0.9, sub_dev="0")
        + intel("xpum_engine_ratio", 0.1, sub_dev="1")
        + intel("xpum_memory_used_bytes", 100, sub_dev="0")
        + intel("xpum_memory_used_bytes", 200, sub_dev="1")
        + intel("xpum_power_watts", 120)
        + intel("xpum_energy_joules_total", 5)
        + 'xpum_power_watts{card="0"} 300\n'
    )
    assert samples.kind == "intel"
    assert gpu(samples, "u").pods == (PodKey("ai", "a"),)
    assert cell(samples, "u", Q.GPU_UTILIZATION) == 0.5
    assert cell(samples, "u", Q.GPU_MEMORY_USED) == 300.0
    assert cell(samples, "u", Q.GPU_POWER) == 120.0
    assert cell(samples, "u", Q.GPU_ENERGY) == 5.0


def test_amd_with_power_alone_is_detected_and_has_no_utilization(read, cell, gpu):
    """The fields of AMD's exporter are chosen by its operator."""
    for name in ("gpu_package_power", "gpu_average_package_power", "gpu_power_usage"):
        samples = read(amd(name, 140, namespace="ai", pod="a"))
        assert samples.kind == "amd"
        assert cell(samples, "u", Q.GPU_POWER) == 140.0
        assert isnan(cell(samples, "u", Q.GPU_UTILIZATION))
        assert gpu(samples, "u").pods == (PodKey("ai", "a"),)


HAMI = """
    hami_host_gpu_memory_used_bytes{node="n",device_index="0",device_uuid="GPU-1",device_type="NVIDIA-Tesla T4",zone="vGPU"} 2147483648
    hami_host_gpu_utilization_ratio{node="n",device_index="0",device_uuid="GPU-1",device_type="NVIDIA-Tesla T4",zone="vGPU"} 57
    hami_host_gpu_memory_controller_utilization_ratio{device_index="0",device_uuid="GPU-1",device_type="NVIDIA-Tesla T4",zone="vGPU"} 9
    hami_host_gpu_utilization_ratio{node="n",device_index="1",device_uuid="GPU-2",device_type="NVIDIA-Tesla T4",zone="vGPU"} 0
    hami_vgpu_memory_used_bytes{namespace="ai",pod="a",container="c",vdevice_index="0",device_uuid="GPU-1",zone="vGPU"} 1073741824
    hami_vgpu_memory_limit_bytes{namespace="ai",pod="a",container="c",vdevice_index="0",device_uuid="GPU-1",zone="vGPU"} 4294967296
    hami_container_device_utilization_ratio{namespace="ai",pod="a",container="c",vdevice_index="0",device_uuid="GPU-1",zone="vGPU"} 0
    """  # noqa: E501 - as they are
# As HAMi prints it before 2.9; one pod more.
OLD_HAMI = """
    Device_utilization_desc_of_container{ctrname="c",deviceuuid="GPU-1",podname="a",podnamespace="ai",vdeviceid="0",zone="vGPU"} 99
    HostCoreUtilization{deviceidx="0",deviceuuid="GPU-1",zone="vGPU"} 57
    HostGPUMemoryUsage{deviceidx="0",deviceuuid="GPU-1",zone="vGPU"} 2.147483648e+09
    vGPU_device_memory_limit_in_bytes{ctrname="c",deviceuuid="GPU-1",podname="a",podnamespace="ai",vdeviceid="0",zone="vGPU"} 4e+09
    vGPU_device_memory_limit_in_bytes{ctrname="c",deviceuuid="GPU-1",podname="b",podnamespace="ai",vdeviceid="0",zone="vGPU"} 4e+09
    """  # noqa: E501 - as they are


def test_host_ratio_of_hami_is_a_percentage_of_the_device(read, cell, gpu):
    samples = read(HAMI)
    assert samples.kind == "hami"
    assert cell(samples, "GPU-1", Q.GPU_UTILIZATION) == 0.57
    assert cell(samples, "GPU-1", Q.GPU_MEMORY_USED) == 2.0**31
    assert cell(samples, "GPU-2", Q.GPU_UTILIZATION) == 0.0
    assert isnan(cell(samples, "GPU-2", Q.GPU_MEMORY_USED))
    assert gpu(samples, "GPU-1").model == "Tesla T4"
    assert gpu(samples, "GPU-2").pods == ()


def test_vgpu_of_hami_is_never_exclusive(read, gpu):
    """A container without a core limit is printed with utilization 0, and one that has not begun is not printed."""
    assert (gpu(read(HAMI), "GPU-1").attribution, gpu(read(HAMI), "GPU-1").pods) == (
        Attribution.DEVICE,
        (PodKey("ai", "a"),),
    )
    assert gpu(read(HAMI), "GPU-2").attribution is Attribution.NONE


def test_old_and_new_names_of_hami_are_one_gpu(read, cell, gpu):
    for text in (OLD_HAMI, OLD_HAMI + HAMI):
        samples = read(text)
        assert samples.kind == "hami"
        assert cell(samples, "GPU-1", Q.GPU_UTILIZATION) == 0.57
        assert cell(samples, "GPU-1", Q.GPU_MEMORY_USED) == 2.0**31
        assert gpu(samples, "GPU-1").pods == (PodKey("ai", "a"), PodKey("ai", "b"))


def test_hami_vgpu_read_through_prometheus_is_not_the_monitors(read, gpu):
    samples = read(
        'HostCoreUtilization{deviceuuid="GPU-1",pod="hami-device-plugin-x",namespace="kube-system"} 3\n'
        'hami_vgpu_memory_limit_bytes{device_uuid="GPU-1",exported_pod="a",exported_namespace="ai",'
        'pod="hami-device-plugin-x",namespace="kube-system"} 4\n'
    )
    assert gpu(samples, "GPU-1").pods == (PodKey("ai", "a"),)


XPUMD = """
    hw_gpu_info{hw_id="u",hw_name="gpu-1",pci_bdf="0000:01:00.0",hw_model="Intel(R) Arc(TM) Pro B60",hw_gpu_type="discrete"} 1
    hw_gpu_utilization_ratio{hw_id="u",hw_name="engine-1-all",pci_bdf="0000:01:00.0",com_intel_subdevice_id="",hw_gpu_task="all"} 0.125
    hw_gpu_utilization_ratio{hw_id="u",hw_name="engine-2-compute-all",pci_bdf="0000:01:00.0",com_intel_subdevice_id="0",hw_gpu_task="compute-all"} 1.04
    hw_gpu_utilization_ratio{hw_id="u",hw_name="engine-3-copy-all",pci_bdf="0000:01:00.0",com_intel_subdevice_id="0",hw_gpu_task="copy-all"} 0
    hw_gpu_utilization_ratio{hw_id="v",hw_name="engine-1-all",pci_bdf="0000:02:00.0",hw_gpu_task="all"} 0
    hw_gpu_bandwidth_utilization_ratio{hw_id="u",hw_name="pci",pci_bdf="0000:01:00.0"} 0.5
    hw_memory_usage_bytes{hw_id="u",hw_name="memory-1",com_intel_subdevice_id="0",hw_memory_location="device"} 100
    hw_memory_usage_bytes{hw_id="u",hw_name="memory-2",com_intel_subdevice_id="1",hw_memory_location="device"} 200
    hw_memory_usage_bytes{hw_id="u",hw_name="memory-3",hw_memory_location="system"} 4000
    hw_memory_size_bytes{hw_id="u",hw_name="memory-1",com_intel_subdevice_id="0",hw_memory_location="device"} 1000
    hw_memory_size_bytes{hw_id="u",hw_name="memory-2",com_intel_subdevice_id="1",hw_memory_location="device"} 1000
    hw_power_watts{hw_id="u",hw_name="power-1",com_intel_subdevice_id="",hw_sensor_location="card"} 120
    hw_power_watts{hw_id="u",hw_name="power-2",com_intel_subdevice_id="",hw_sensor_location="package"} 90
    hw_power_watts{hw_id="u",hw_name="power-3",com_intel_subdevice_id="0",hw_sensor_location="stack"} 40
    hw_energy_joules_total{hw_id="u",hw_name="power-1",com_intel_subdevice_id="",hw_sensor_location="card"} 5000
    hw_temperature_celsius{hw_id="u",hw_name="t-1",hw_sensor_location="gpu",statistic="max"} 61
    hw_temperature_celsius{hw_id="u",hw_name="t-2",hw_sensor_location="gpu",statistic="min"} 40
    hw_temperature_celsius{hw_id="u",hw_name="t-3",hw_sensor_location="memory",statistic="max"} 70
    """  # noqa: E501 - as they are


def test_busiest_engine_group_of_an_intel_gpu_counts(read, cell, gpu):
    samples = read(XPUMD)
    assert samples.kind == "intel_xpumd"
    assert cell(samples, "u", Q.GPU_UTILIZATION) == 1.0
    assert cell(samples, "v", Q.GPU_UTILIZATION) == 0.0
    assert gpu(samples, "u").model == "Intel(R) Arc(TM) Pro B60"
    assert gpu(samples, "u").attribution is Attribution.NONE


def test_memory_of_an_intel_gpu_is_the_devices_and_power_the_widest_domains(read, cell):
    samples = read(XPUMD)
    assert cell(samples, "u", Q.GPU_MEMORY_USED) == 300.0
    assert cell(samples, "u", Q.GPU_MEMORY_TOTAL) == 2000.0
    assert cell(samples, "u", Q.GPU_POWER) == 120.0
    assert cell(samples, "u", Q.GPU_ENERGY) == 5000.0
    assert cell(samples, "u", Q.GPU_TEMPERATURE) == 61.0


def test_only_dcgm_has_engine_activity(read):
    pages = (SMI, amd("gpu_gfx_activity", 57), intel("xpum_engine_ratio", 0.5), HAMI, XPUMD)
    assert all(Q.GPU_ENGINE_ACTIVE not in read(page).quantities for page in pages)


def test_kinds_of_gpus_are_distinct_from_queues():
    assert {"dcgm", "nvidia_gpu_exporter", "hami", "amd", "intel", "intel_xpumd"} == GPU_KINDS
    assert all(KINDS[kind].work is None and KINDS[kind].at_zero == "nothing" for kind in GPU_KINDS)
