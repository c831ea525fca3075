"""GPUs and MIG instances are read from dcgm-exporter."""

from math import isnan

import numpy as np
import pytest

from exporter.model import Attribution, PodKey, Quantity

Q = Quantity
MIB = 2.0**20

T4 = """
    # HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
    # TYPE DCGM_FI_DEV_GPU_UTIL gauge
    DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-t4",device="nvidia0",modelName="Tesla T4",Hostname="n1"} 91
    DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-t4",device="nvidia0",modelName="Tesla T4",Hostname="n1"} 0.156
    DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-t4",device="nvidia0",modelName="Tesla T4",Hostname="n1"} 0.093
    DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-t4",device="nvidia0",modelName="Tesla T4",Hostname="n1"} 14912
    DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-t4",device="nvidia0",modelName="Tesla T4",Hostname="n1"} 1024
    DCGM_FI_DEV_FB_RESERVED{gpu="0",UUID="GPU-t4",device="nvidia0",modelName="Tesla T4",Hostname="n1"} 447
    DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-t4",device="nvidia0",modelName="Tesla T4",Hostname="n1"} 14.512000
    DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-t4",device="nvidia0",modelName="Tesla T4"} 48287135
    DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-t4",device="nvidia0",modelName="Tesla T4",Hostname="n1"} 24
    DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-t4",device="nvidia0",err_code="31",err_msg="GPU memory page fault"} 31
    """

MIG = """
    DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",GPU_I_PROFILE="1g.5gb",GPU_I_ID="7",container="",namespace="",pod=""} 116
    DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",GPU_I_PROFILE="2g.10gb",GPU_I_ID="5",container="c",namespace="ai",pod="p-0"} 116
    DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-a",GPU_I_PROFILE="1g.5gb",GPU_I_ID="7"} 57585599
    DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a",GPU_I_PROFILE="1g.5gb",GPU_I_ID="7"} 37
    DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-a",GPU_I_PROFILE="1g.5gb",GPU_I_ID="7"} 0
    DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",GPU_I_PROFILE="1g.5gb",GPU_I_ID="7"} 0
    DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-a",GPU_I_PROFILE="1g.5gb",GPU_I_ID="7",pod=""} 480
    DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",GPU_I_PROFILE="1g.5gb",GPU_I_ID="7",pod=""} 4384
    DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-a",GPU_I_PROFILE="1g.5gb",GPU_I_ID="7",pod=""} 0.999917
    DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-a",GPU_I_PROFILE="2g.10gb",GPU_I_ID="5",namespace="ai",pod="p-0"} 9702
    DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",GPU_I_PROFILE="2g.10gb",GPU_I_ID="5",namespace="ai",pod="p-0"} 153
    DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-a",GPU_I_PROFILE="2g.10gb",GPU_I_ID="5",namespace="ai",pod="p-0"} 0.36
    """  # noqa: E501


def test_units_become_ratios_bytes_watts_and_joules(read, cell):
    samples = read(T4)
    assert cell(samples, "GPU-t4", Q.GPU_UTILIZATION) == 0.91  # percent
    assert cell(samples, "GPU-t4", Q.GPU_MEMORY_USED) == 1024 * MIB  # MiB
    assert cell(samples, "GPU-t4", Q.GPU_POWER) == 14.512
    assert cell(samples, "GPU-t4", Q.GPU_ENERGY) == 48287.135  # mJ
    assert cell(samples, "GPU-t4", Q.GPU_TEMPERATURE) == 24.0
    assert cell(samples, "GPU-t4", Q.GPU_XID) == 31.0


def test_utilization_and_engine_activity_are_two_quantities(read, cell):
    """A T4 that runs one small kernel all the time: 91 % utilised, 15.6 % active."""
    samples = read(T4)
    assert cell(samples, "GPU-t4", Q.GPU_UTILIZATION) == 0.91
    assert cell(samples, "GPU-t4", Q.GPU_ENGINE_ACTIVE) == 0.156
    assert cell(samples, "GPU-t4", Q.GPU_DRAM_ACTIVE) == 0.093


def test_total_memory_is_the_sum_of_free_used_and_reserved(read, cell):
    assert cell(read(T4), "GPU-t4", Q.GPU_MEMORY_TOTAL) == (14912 + 1024 + 447) * MIB


def test_total_memory_is_unknown_without_the_reserved_part(read, cell):
    """An exporter before 4.4: free and used alone are 600 to 1,000 MiB too little."""
    samples = read('DCGM_FI_DEV_FB_FREE{UUID="g"} 900\nDCGM_FI_DEV_FB_USED{UUID="g"} 100\n')
    assert isnan(cell(samples, "g", Q.GPU_MEMORY_TOTAL))
    assert cell(samples, "g", Q.GPU_MEMORY_USED) == 100 * MIB


def test_exposed_total_has_priority_over_the_sum(read, cell):
    samples = read(
        'DCGM_FI_DEV_FB_TOTAL{UUID="g"} 1024\nDCGM_FI_DEV_FB_FREE{UUID="g"} 900\nDCGM_FI_DEV_FB_USED{UUID="g"} 100\n'
    )
    assert cell(samples, "g", Q.GPU_MEMORY_TOTAL) == 1024 * MIB


@pytest.mark.parametrize("lost", ["FREE", "USED", "RESERVED"])
def test_total_memory_is_unknown_with_a_blank_part(read, cell, lost):
    values = {"FREE": "900", "USED": "100", "RESERVED": "24"} | {lost: "9223372036854775794"}
    samples = read("".join(f'DCGM_FI_DEV_FB_{name}{{UUID="g"}} {value}\n' for name, value in values.items()))
    assert isnan(cell(samples, "g", Q.GPU_MEMORY_TOTAL))


def test_total_memory_is_unknown_without_the_used_part(read, cell):
    assert isnan(cell(read('DCGM_FI_DEV_FB_FREE{UUID="g"} 900\n'), "g", Q.GPU_MEMORY_TOTAL))


def test_mig_instance_is_a_row_separate_from_its_parent(read, cell, gpu):
    samples = read(MIG)
    assert [(s.uuid, s.instance, s.profile) for s in samples.subjects] == [
        ("GPU-a", None, None),
        ("GPU-a", "7", "1g.5gb"),
        ("GPU-a", "5", "2g.10gb"),
    ]
    assert cell(samples, ("GPU-a", "7"), Q.GPU_ENGINE_ACTIVE) == 0.999917
    assert cell(samples, ("GPU-a", "5"), Q.GPU_ENGINE_ACTIVE) == 0.36
    assert cell(samples, ("GPU-a", "7"), Q.GPU_MEMORY_USED) == 4384 * MIB
    assert isnan(cell(samples, ("GPU-a", "7"), Q.GPU_MEMORY_TOTAL))
    assert gpu(samples, "GPU-a", "5").attribution is Attribution.MIG
    assert gpu(samples, "GPU-a", "5").pods == (PodKey("ai", "p-0"),)
    assert gpu(samples, "GPU-a", "7").attribution is Attribution.NONE


@pytest.mark.parametrize("quantity", [Q.GPU_POWER, Q.GPU_ENERGY, Q.GPU_TEMPERATURE, Q.GPU_XID])
def test_values_repeated_from_the_parent_are_not_the_instances(read, cell, quantity):
    samples = read(MIG)
    assert isnan(cell(samples, ("GPU-a", "7"), quantity))
    assert isnan(cell(samples, ("GPU-a", "5"), quantity))


def test_values_repeated_by_instances_belong_to_the_parent_and_count_once(read, cell, gpu):
    samples = read(MIG)
    assert cell(samples, "GPU-a", Q.GPU_POWER) == 116.0
    assert cell(samples, "GPU-a", Q.GPU_ENERGY) == 57585.599
    assert cell(samples, "GPU-a", Q.GPU_TEMPERATURE) == 37.0
    assert cell(samples, "GPU-a", Q.GPU_XID) == 0.0
    assert np.nansum(samples.column(Q.GPU_POWER)) == 116.0
    assert gpu(samples, "GPU-a").implied
    assert not gpu(samples, "GPU-a", "7").implied


@pytest.mark.parametrize("quantity", [Q.GPU_ENGINE_ACTIVE, Q.GPU_UTILIZATION, Q.GPU_MEMORY_USED, Q.GPU_MEMORY_TOTAL])
def test_parent_has_no_values_of_its_instances(read, cell, quantity):
    assert isnan(cell(read(MIG), "GPU-a", quantity))


def test_series_of_the_parent_has_priority_over_repeated_ones(read, cell):
    samples = read(MIG + '\n    DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a"} 99\n')
    assert (cell(samples, "GPU-a", Q.GPU_POWER), cell(samples, "GPU-a", Q.GPU_TEMPERATURE)) == (99.0, 37.0)


def test_instances_without_repeated_values_imply_no_parent(read):
    samples = read('DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="g",GPU_I_ID="1",GPU_I_PROFILE="1g.5gb"} 0.5\n')
    assert [(s.uuid, s.instance) for s in samples.subjects] == [("g", "1")]


def test_parent_beside_its_instances_has_no_pods(read, cell, gpu):
    """-d g+i, and a plugin that names the pod by the device: the pod holds the instance, not all of the GPU."""
    pod = 'namespace="ai",pod="p-0",container="c"'
    samples = read(
        f"""
        DCGM_FI_PROF_GR_ENGINE_ACTIVE{{gpu="0",UUID="g",{pod}}} 0.1
        DCGM_FI_PROF_GR_ENGINE_ACTIVE{{gpu="0",UUID="g",GPU_I_ID="1",GPU_I_PROFILE="1g.5gb",{pod}}} 0.7
        DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="g",{pod}}} 90
        DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="g",GPU_I_ID="1",GPU_I_PROFILE="1g.5gb",{pod}}} 90
        """
    )
    assert (gpu(samples, "g").pods, gpu(samples, "g").attribution) == ((), Attribution.NONE)
    assert not gpu(samples, "g").implied
    assert gpu(samples, "g", "1").pods == (PodKey("ai", "p-0"),)
    assert (cell(samples, "g", Q.GPU_ENGINE_ACTIVE), cell(samples, ("g", "1"), Q.GPU_ENGINE_ACTIVE)) == (0.1, 0.7)
    assert np.nansum(samples.column(Q.GPU_POWER)) == 90.0


def test_parent_is_one_row_in_any_order_of_lines(read):
    parent = 'DCGM_FI_DEV_POWER_USAGE{UUID="g"} 90\n'
    instances = "".join(f'DCGM_FI_DEV_FB_USED{{UUID="g",GPU_I_ID="{i}",GPU_I_PROFILE="1g.5gb"}} 6\n' for i in (1, 2))
    for text in (parent + instances, instances + parent):
        assert sorted((s.uuid, s.instance or "") for s in read(text).subjects) == [("g", ""), ("g", "1"), ("g", "2")]


def test_utilization_of_a_mig_instance_is_unknown_even_if_it_is_zero(read, cell):
    assert isnan(cell(read(MIG), ("GPU-a", "7"), Q.GPU_UTILIZATION))


def test_parent_beside_its_instances_keeps_its_power_and_its_row(read, cell):
    samples = read(MIG + '\n    DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a"} 116.5\n')
    assert len(samples.subjects) == 3
    assert cell(samples, "GPU-a", Q.GPU_POWER) == 116.5
    assert isnan(cell(samples, "GPU-a", Q.GPU_ENGINE_ACTIVE))
    assert isnan(cell(samples, ("GPU-a", "7"), Q.GPU_POWER))


def test_missing_family_is_unknown_and_not_zero(read, cell):
    """A vGPU guest prints no power, no temperature and no profiling field."""
    samples = read(
        """
        DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-5a3c00000000",modelName="GRID A100-10C",Hostname="vm"} 0
        DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-5a3c00000000",modelName="GRID A100-10C",Hostname="vm"} 0
        DCGM_FI_DEV_VGPU_LICENSE_STATUS{gpu="0",UUID="GPU-5a3c00000000",modelName="GRID A100-10C",Hostname="vm"} 0
        """
    )
    assert cell(samples, "GPU-5a3c00000000", Q.GPU_UTILIZATION) == 0.0
    assert cell(samples, "GPU-5a3c00000000", Q.GPU_MEMORY_USED) == 0.0
    for quantity in (Q.GPU_ENGINE_ACTIVE, Q.GPU_POWER, Q.GPU_TEMPERATURE, Q.GPU_MEMORY_TOTAL):
        assert isnan(cell(samples, "GPU-5a3c00000000", quantity))


def test_renamed_fields_are_the_same_quantities(read, cell):
    samples = read(
        """
        DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO{UUID="g"} 0.5
        DCGM_FI_PROF_SM_UTIL_RATIO{UUID="g"} 0.4
        DCGM_FI_PROF_TENSOR_UTIL_RATIO{UUID="g"} 0.3
        DCGM_FI_PROF_DRAM_UTIL_RATIO{UUID="g"} 0.2
        DCGM_FI_DEV_BOARD_POWER_WATTS{UUID="g"} 300
        DCGM_FI_DEV_GPU_TEMP_CELSIUS{UUID="g"} 40
        DCGM_FI_DEV_XID_ERROR{UUID="g"} 79
        DCGM_FI_DEV_FB_USED_BYTES{UUID="g"} 1048576
        DCGM_FI_DEV_FB_CAPACITY_BYTES{UUID="g"} 4194304
        DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL{UUID="g"} 12
        """
    )
    expected = {
        Q.GPU_ENGINE_ACTIVE: 0.5,
        Q.GPU_SM_ACTIVE: 0.4,
        Q.GPU_TENSOR_ACTIVE: 0.3,
        Q.GPU_DRAM_ACTIVE: 0.2,
        Q.GPU_POWER: 300.0,
        Q.GPU_TEMPERATURE: 40.0,
        Q.GPU_XID: 79.0,
        Q.GPU_MEMORY_USED: 1 * MIB,
        Q.GPU_MEMORY_TOTAL: 4 * MIB,
        Q.GPU_ENERGY: 12.0,
    }
    assert {quantity: cell(samples, "g", quantity) for quantity in expected} == expected


def test_field_with_both_names_counts_once(read, cell):
    samples = read('DCGM_FI_DEV_POWER_USAGE{UUID="g"} 300\nDCGM_FI_DEV_BOARD_POWER_WATTS{UUID="g"} 300\n')
    assert cell(samples, "g", Q.GPU_POWER) == 300.0


def test_utilization_with_a_ratio_name_is_a_percentage_if_any_value_is_above_one(read, cell):
    samples = read('DCGM_FI_DEV_GPU_UTIL_RATIO{UUID="a"} 1\nDCGM_FI_DEV_GPU_UTIL_RATIO{UUID="b"} 57\n')
    assert cell(samples, "a", Q.GPU_UTILIZATION) == 0.01
    assert cell(samples, "b", Q.GPU_UTILIZATION) == 0.57


def test_utilization_with_a_ratio_name_is_otherwise_a_ratio(read, cell):
    samples = read('DCGM_FI_DEV_GPU_UTIL_RATIO{UUID="a"} 1.0\nDCGM_FI_DEV_GPU_UTIL_RATIO{UUID="b"} 0.57\n')
    assert cell(samples, "a", Q.GPU_UTILIZATION) == 1.0
    assert cell(samples, "b", Q.GPU_UTILIZATION) == 0.57


def test_ratio_slightly_above_one_is_one(read, cell):
    samples = read('DCGM_FI_PROF_SM_ACTIVE{UUID="g"} 1.294\nDCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="g"} 1.0001\n')
    assert cell(samples, "g", Q.GPU_SM_ACTIVE) == 1.0
    assert cell(samples, "g", Q.GPU_ENGINE_ACTIVE) == 1.0
    assert samples.dropped == ()


def test_only_the_uuid_label_is_required(read, cell):
    """`Hostname` became `hostname`, and neither is there with -n; old namespaces write `uuid`."""
    for labels in ('UUID="g",hostname="n1"', 'uuid="g",Hostname="n1"', 'gpu="0", UUID="g",'):
        assert cell(read(f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} 50\n"), "g", Q.GPU_UTILIZATION) == 0.5


def test_series_of_links_and_cpus_are_no_gpus(read):
    samples = read(
        """
        DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL{nvlink="3",gpu_uuid="GPU-x",Hostname="n"} 5
        DCGM_FI_DEV_CPU_UTIL_RATIO{cpu="0",Hostname="n"} 0.5
        """
    )
    assert samples.kind == "dcgm"
    assert samples.subjects == ()


def test_occupancy_and_links_are_read(read, cell):
    # Fields 1003 and 1009 to 1012; the links are rates, both names of the occupancy resolve (go-dcgm dcgm_fields.h).
    samples = read(
        """
        DCGM_FI_PROF_SM_OCCUPANCY{UUID="a"} 0.25
        DCGM_FI_PROF_SM_OCCUPANCY_RATIO{UUID="b"} 0.5
        DCGM_FI_PROF_PCIE_TX_BYTES{UUID="a"} 1e9
        DCGM_FI_PROF_PCIE_RX_BYTES{UUID="a"} 2e9
        DCGM_FI_PROF_NVLINK_TX_BYTES{UUID="a"} 3e11
        DCGM_FI_PROF_NVLINK_RX_BYTES{UUID="a"} 9223372036854775794
        """
    )
    assert [cell(samples, uuid, Q.GPU_SM_OCCUPANCY) for uuid in "ab"] == [0.25, 0.5]
    sent = (cell(samples, "a", quantity) for quantity in (Q.GPU_PCIE_SENT, Q.GPU_PCIE_RECEIVED, Q.GPU_NVLINK_SENT))
    assert list(sent) == [1e9, 2e9, 3e11]
    assert np.isnan(cell(samples, "a", Q.GPU_NVLINK_RECEIVED)), "a blank value"
