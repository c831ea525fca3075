"""GPUs without dcgm-exporter."""

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


def test_nvidia_smi_speaks_in_ratios_and_bytes_already(read, cell, gpu):
    samples = read(SMI)
    assert samples.kind == "nvidia_gpu_exporter"
    assert gpu(samples, "u").model == "NVIDIA L40S"
    assert gpu(samples, "u").attribution is Attribution.NONE
    assert cell(samples, "u", Q.GPU_UTILIZATION) == 0.57
    assert cell(samples, "u", Q.GPU_MEMORY_USED) == 2.0**20
    assert cell(samples, "u", Q.GPU_MEMORY_TOTAL) == 48305799168.0
    assert cell(samples, "u", Q.GPU_POWER) == 144.97
    assert cell(samples, "u", Q.GPU_TEMPERATURE) == 63.0


def test_under_mig_nvidia_smi_does_not_say_how_busy_a_gpu_is(read, cell):
    samples = read("\n".join(line for line in SMI.splitlines() if "utilization" not in line))
    assert isnan(cell(samples, "u", Q.GPU_UTILIZATION))
    assert cell(samples, "u", Q.GPU_MEMORY_USED) == 2.0**20


def line(family, value, labels):
    said = ",".join(f'{name}="{text}"' for name, text in labels.items())
    return f"{family}{{{said}}} {value}\n"


def amd(family, value, **labels):
    labels = {"gpu_uuid": "u", "gpu_id": "0", "gpu_partition_id": "0", "card_series": "MI300X",
              "namespace": "", "pod": "", "hostname": "n", **labels}  # fmt: skip
    return line(family, value, labels)


@pytest.mark.parametrize("prefix", ["", "amd_"])
def test_amds_percentages_mebibytes_and_microjoules_become_ratios_bytes_and_joules(read, cell, gpu, prefix):
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


def test_an_activity_that_amd_does_not_know_is_no_full_load(read, cell):
    assert isnan(cell(read(amd("gpu_gfx_activity", 65535)), "u", Q.GPU_UTILIZATION))


def test_an_amd_gpu_is_one_whoever_shares_it(read, cell, gpu):
    samples = read(
        amd("gpu_gfx_activity", 57, namespace="ai", pod="a") + amd("gpu_gfx_activity", 57, namespace="ai", pod="b")
    )
    assert gpu(samples, "u").attribution is Attribution.DEVICE
    assert gpu(samples, "u").pods == (PodKey("ai", "a"), PodKey("ai", "b"))
    assert cell(samples, "u", Q.GPU_UTILIZATION) == 0.57


def test_an_amd_gpu_of_one_pod_is_that_pods(read, gpu):
    held = gpu(read(amd("gpu_gfx_activity", 57, namespace="ai", pod="a")), "u")
    assert (held.attribution, held.pods) == (Attribution.EXCLUSIVE, (PodKey("ai", "a"),))


def test_series_of_one_gpu_that_say_more_or_less_of_it_are_one_gpu(read, gpu):
    samples = read(
        amd("gpu_gfx_activity", 57, namespace="ai", pod="a")
        + amd("gpu_package_power", 140, card_series="", hostname="")
        + intel("xpum_engine_ratio", 0.5)
    )
    assert len(samples.subjects) == 1
    assert (gpu(samples, "u").model, gpu(samples, "u").pods) == ("MI300X", (PodKey("ai", "a"),))
    assert len(read(intel("xpum_engine_ratio", 0.5) + intel("xpum_power_watts", 9, dev_name="")).subjects) == 1


def test_an_amd_gpu_without_a_uuid_is_known_by_its_serial_number_or_its_place(read):
    line = 'gpu_gfx_activity{{gpu_id="3",{}hostname="n"}} 5\n'
    assert [each.uuid for each in read(line.format('serial_number="SN",')).subjects] == ["SN"]
    assert [each.uuid for each in read(line.format('gpu_uuid="",')).subjects] == ["3"]


def test_through_prometheus_an_amd_gpu_is_not_the_exporters(read, gpu):
    exporter = {"namespace": "gpu", "pod": "default-metrics-exporter-vvvkm"}
    samples = read(
        amd("gpu_gfx_activity", 1, **exporter)
        + amd("gpu_gfx_activity", 2, gpu_uuid="v", **exporter, exported_namespace="ai", exported_pod="a")
    )
    assert gpu(samples, "u").pods == ()
    assert gpu(samples, "v").pods == (PodKey("ai", "a"),)
    assert gpu(read(amd("gpu_gfx_activity", 1, **exporter)), "u").pods == ()


def test_the_zeros_of_an_amd_partition_are_not_believed_and_its_memory_is_its_own(read, cell):
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


def test_a_partitioned_amd_gpu_has_no_activity_of_its_own(read, cell):
    page = amd("gpu_gfx_activity", 0, gpu_compute_partition_type="cpx") + amd("gpu_used_vram", 5)
    assert isnan(cell(read(page), "u", Q.GPU_UTILIZATION))
    page = amd("gpu_gfx_activity", 40, gpu_compute_partition_type="spx")
    assert cell(read(page), "u", Q.GPU_UTILIZATION) == 0.4


def intel(family, value, **labels):
    labels = {"uuid": "u", "dev_name": "Flex 170", "kube_namespace": "ai", "kube_pod": "a", **labels}
    return line(family, value, labels)


def test_intels_tiles_are_parts_of_a_device_that_speaks_for_itself(read, cell, gpu):
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


def test_no_exporter_but_dcgm_tells_how_much_a_gpu_works(read):
    pages = (SMI, amd("gpu_gfx_activity", 57), intel("xpum_engine_ratio", 0.5))
    assert all(Q.GPU_ENGINE_ACTIVE not in read(page).quantities for page in pages)


def test_pages_of_gpus_are_told_apart_from_queues():
    assert {"dcgm", "nvidia_gpu_exporter", "amd", "intel"} == GPU_KINDS
    assert all(KINDS[kind].work is None and KINDS[kind].at_zero == "nothing" for kind in GPU_KINDS)
