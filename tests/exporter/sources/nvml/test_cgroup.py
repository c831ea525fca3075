"""The pod and container of a process are read from any /proc/PID/cgroup."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporter.sources.nvml.processes import CgroupPod, cgroup_pod

UID = "74c13223-5a00-11e9-b385-42010a80018d"
SYSTEMD_UID = UID.replace("-", "_")
STATIC = "0123456789abcdef0123456789abcdef"
ID = "34dc0b5e626f2c5c4c5170e34b10e7654ce36f0fcd532739f4445baabea03376"
QOS = "kubepods-burstable.slice/kubepods-burstable-pod"

FORMS = {
    "v1 cgroupfs, besteffort": f"11:devices:/kubepods/besteffort/pod{UID}/{ID}\n",
    "v1 cgroupfs, guaranteed": f"4:memory:/kubepods/pod{UID}/{ID}\n",
    "v1, the first controllers unused": f"13:rdma:/\n12:misc:/\n1:name=systemd:/kubepods/burstable/pod{UID}/{ID}\n",
    "v1, controllers with a comma": f"2:cpu,cpuacct:/kubepods/burstable/pod{UID}/{ID}\n",
    "v2 cgroupfs": f"0::/kubepods/burstable/pod{UID}/{ID}\n",
    "v2 systemd, containerd": f"0::/kubepods.slice/{QOS}{SYSTEMD_UID}.slice/cri-containerd-{ID}.scope\n",
    "v2 systemd, guaranteed": f"0::/kubepods.slice/kubepods-pod{SYSTEMD_UID}.slice/cri-containerd-{ID}.scope\n",
    "v2 systemd, CRI-O": f"0::/kubepods.slice/{QOS}{SYSTEMD_UID}.slice/crio-{ID}.scope\n",
    "v2 systemd, CRI-O with crun": f"0::/kubepods.slice/{QOS}{SYSTEMD_UID}.slice/crio-{ID}.scope/container\n",
    "v1 systemd, docker": f"9:blkio:/kubepods.slice/{QOS}{SYSTEMD_UID}.slice/docker-{ID}.scope\n",
    "systemd inside the container": f"0::/kubepods/pod{UID}/{ID}/init.scope\n",
    "names of systemd, made without it": (
        f"1:name=systemd:/system.slice/containerd.service/kubepods-burstable-pod{SYSTEMD_UID}.slice:cri-containerd:{ID}\n"
    ),
    "kind, cgroupfs": f"0::/kubelet/kubepods/besteffort/pod{UID}/{ID}\n",
    "kind, systemd": (
        "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
        f"kubelet-kubepods-burstable-pod{SYSTEMD_UID}.slice/cri-containerd-{ID}.scope\n"
    ),
    "a node that is a container": f"5:cpuset:/docker/{'f' * 64}/kubelet/kubepods/pod{UID}/{ID}\n",
    "read from another cgroup namespace": f"0::/../../pod{UID}/{ID}\n",
    "the same, systemd": f"0::/../../kubepods-burstable-pod{SYSTEMD_UID}.slice/cri-containerd-{ID}.scope\n",
    "a group that was removed": f"0::/kubepods/pod{UID}/{ID} (deleted)\n",
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS.keys())
def test_process_of_a_container_names_its_pod_and_its_container(text):
    assert cgroup_pod(text) == CgroupPod(UID, ID)


def test_uid_of_a_static_pod_is_a_hash_without_dashes():
    assert cgroup_pod(f"0::/kubepods/burstable/pod{STATIC}/{ID}") == CgroupPod(STATIC, ID)


def test_pod_is_read_without_its_container():
    monitor = f"0::/kubepods.slice/{QOS}{SYSTEMD_UID}.slice/crio-conmon-{ID}.scope"

    assert cgroup_pod(monitor) == CgroupPod(UID, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0::/\n",
        "0::/system.slice/nvidia-mps.service\n",
        "0::/user.slice/user-1000.slice/session-2.scope\n",
        f"4:memory:/docker/{ID}\n",
        f"0::/system.slice/docker-{ID}.scope\n",
        f"0::/../cri-containerd-{ID}.scope\n",  # another container of the reader's pod: the UID is above both
        "0::/kubepods.slice/kubepods-burstable.slice\n",
        f"0::/kubepods/pod{UID[:-1]}/{ID}\n",
        f"0::/kubepods/pod{UID}0/{ID}\n",
        f"0::/kubepods/pod{UID.replace('-', '_', 1)}/{ID}\n",
        f"0::/machine.slice/libpod-{ID}.scope\n",
        "not a cgroup file",
    ],
)
def test_path_without_a_whole_pod_uid_has_no_pod(text):
    assert cgroup_pod(text) is None


@pytest.mark.parametrize("container", [ID, "of-an-unknown-runtime"])
def test_groups_inside_a_container_do_not_change_its_pod(container):
    other = UID.replace("7", "8")

    assert cgroup_pod(f"0::/kubepods/pod{UID}/{container}/kubepods/pod{other}/{ID}").pod_uid == UID


@given(st.text())
@example("::" * 5)
@example("0::/pod")
def test_no_text_raises_an_exception(text):
    assert cgroup_pod(text) is None or len(cgroup_pod(text).pod_uid) in {32, 36}


@given(
    uid=st.uuids().map(str),
    container=st.text("0123456789abcdef", min_size=64, max_size=64),
    qos=st.sampled_from(["", "burstable", "besteffort"]),
    root=st.sampled_from(["", "/kubelet", "/a/b", "/docker/" + "0" * 64]),
    prefix=st.sampled_from(["cri-containerd", "crio", "docker"]),
    version=st.sampled_from(["0::", "7:cpu,cpuacct:", "1:name=systemd:"]),
)
def test_both_cgroup_drivers_give_the_same_pod(uid, container, qos, root, prefix, version):
    cgroupfs = f"{version}{root}/kubepods/{qos + '/' if qos else ''}pod{uid}/{container}"
    middle = f"kubepods-{qos}.slice/kubepods-{qos}" if qos else "kubepods"
    systemd = f"{version}{root}/kubepods.slice/{middle}-pod{uid.replace('-', '_')}.slice/{prefix}-{container}.scope"

    assert cgroup_pod(cgroupfs) == cgroup_pod(systemd) == CgroupPod(uid, container)
