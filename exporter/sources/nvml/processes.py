"""Finds the pods that use a GPU, by its processes, and so how far its values can be attributed.

NVML lists processes, the text of /proc/PID/cgroup has the UID of a process's pod, and `pod_of` has the pod's name. That
needs the node's own process IDs: in its own PID namespace a container gets IDs that mean other processes, or IDs that
the driver translated, so then no pod is named. A GPU that is allocated but not opened belongs to no pod.

Worked example: processes 4711 and 4712 are both of pod ai/chat-0, and there are no others: EXCLUSIVE. With a third of
pod ai/embed-0, and processes that used the GPU for 0.5 and 0.2 of the time while it was busy for 0.7: PROCESS; while it
was busy for 0.95, DEVICE.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from exporter.model import Attribution, PodKey

from .library import QUIET, Library, NvmlCode, call, or_empty, or_older, retried

# The initial PID namespace has this number on every Linux (include/linux/proc_ns.h, PROC_PID_INIT_INO).
NODE_PID_NAMESPACE = "pid:[4026531836]"
# A GPU's utilization is of its last second at most (nvml.h), that of processes of the time since the last call.
TOLERANCE = 0.1
MOST_PERCENT = 100

# kubelet's cgroupfs driver makes a folder `podUID`; its systemd driver a slice `…-podUID.slice` with "_" for "-"
# (pkg/kubelet/cm, convertCgroupNameToSystemd). A static pod's UID is 32 hexadecimal digits, the hash of its file.
# The path before it varies: kubelet's --cgroup-root (kind: /kubelet/kubepods), a runtime inside another, or, where the
# reader is in a cgroup namespace of its own, "/../.." instead of the path they share (cgroup_namespaces(7)).
_UID = r"[0-9a-f]{8}(?:(?P<dash>[-_])(?:[0-9a-f]{4}(?P=dash)){3}[0-9a-f]{12}|[0-9a-f]{24})"
_POD = re.compile(rf"(?:^|.*-)pod(?P<uid>{_UID})(?:\.slice)?")
# containerd: cri-containerd-ID.scope; CRI-O: crio-ID.scope, and crio-conmon-ID.scope for its monitor, which never uses
# a GPU; docker: docker-ID.scope; cgroupfs: ID alone.
_CONTAINER = re.compile(r"(?:(?:cri-containerd|crio|docker)-)?(?P<id>[0-9a-f]{64})(?:\.scope)?")
# containerd with systemd's names under a kubelet without them: one folder `…-podUID.slice:cri-containerd:ID`.
_POD_AND_CONTAINER = re.compile(r"(?P<pod>[^:]+\.slice):(?:cri-containerd|crio|docker):(?P<id>[0-9a-f]{64})")

# A pod by its UID in the API; None if unknown.
PodOf: TypeAlias = Callable[[str], PodKey | None]


class CgroupPod(NamedTuple):
    """pod_uid: as in the API, with dashes. container: 64 hexadecimal digits, or None if the path has none."""

    pod_uid: str
    container: str | None


class GpuUsers(NamedTuple):
    """pods: the pods with processes on a GPU, and their process IDs. strangers: number of processes of no known pod.

    complete: whether every list of processes was read; if not, there may be more.
    """

    pods: Mapping[PodKey, Collection[int]]
    strangers: int
    complete: bool

    @property
    def empty(self) -> bool:
        """Whether it is known that no process has the GPU open."""
        return self.complete and not self.pods and not self.strangers


class Processes:
    """Reads the processes of GPUs. Calls `pod_of` in the thread that calls NVML. proc: the node's /proc."""

    def __init__(self, library: Library, pod_of: PodOf, proc: Path) -> None:
        self._library = library
        self._pod_of = pod_of
        self._proc = proc
        self._sampled_us: dict[str, int] = {}  # by the GPU's UUID: time of its newest utilization sample, microseconds

    def users(self, handle: Any, problems: list[str]) -> GpuUsers:
        """The users of a GPU or MIG device. Raises GpuLost, DriverGone."""
        pids, complete = self._pids(handle, problems)
        if not self._in_node_namespace():
            problems.append("the pods of its processes are unknown: set hostPID: true, for the node's PID namespace")
            return GpuUsers({}, len(pids), complete)
        pods: dict[PodKey, set[int]] = {}
        strangers = 0
        for pid in sorted(pids):
            try:
                found = cgroup_pod((self._proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace"))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended
            except OSError as error:
                problems.append(f"process {pid}: {error.strerror}")
                found = None
            pod = self._pod_of(found.pod_uid) if found is not None else None
            if pod is None:
                strangers += 1
                problems.append(
                    f"process {pid} is of no pod" if found is None else f"the name of pod {found.pod_uid} is unknown"
                )
            else:
                pods.setdefault(pod, set()).add(pid)
        return GpuUsers(pods, strangers, complete)

    def attribution(self, users: GpuUsers, handle: Any, uuid: str, busy: float, problems: list[str]) -> Attribution:
        """How the values of a whole GPU are attributed. busy: its utilization, NaN if unknown.

        Raises GpuLost, DriverGone.
        """
        if not users.pods:
            return Attribution.NONE
        if users.strangers or not users.complete:
            return Attribution.DEVICE
        if len(users.pods) == 1:
            return Attribution.EXCLUSIVE
        utilization = self._utilization(handle, uuid, problems)
        used = sum(utilization.get(pid, 0.0) for pids in users.pods.values() for pid in pids)
        # 0 of the processes is no measurement; NaN of the GPU compares as false.
        return Attribution.PROCESS if used > 0.0 and abs(used - busy) <= TOLERANCE else Attribution.DEVICE

    def _utilization(self, handle: Any, uuid: str, problems: list[str]) -> Mapping[int, float]:
        """The ratio of time of each process that used the GPU since the last call."""
        since = self._sampled_us.get(uuid, 0)
        function = retried(self._library, lambda: self._library.nvmlDeviceGetProcessUtilization(handle, since))
        # pynvml raises an error of value 0 where the driver has no samples, which the driver calls a success.
        function = or_empty(self._library, function, {NvmlCode.SUCCESS, NvmlCode.NOT_FOUND})
        samples = call(self._library, "utilization by process", function, problems) or ()
        newest: dict[int, Any] = {}
        for sample in samples:
            before = newest.get(sample.pid)
            if sample.smUtil <= MOST_PERCENT and (before is None or sample.timeStamp > before.timeStamp):
                newest[sample.pid] = sample
        self._sampled_us[uuid] = max([since, *(sample.timeStamp for sample in newest.values())])
        return {pid: sample.smUtil / 100.0 for pid, sample in newest.items()}

    def _pids(self, handle: Any, problems: list[str]) -> tuple[set[int], bool]:
        """Process IDs, and whether all lists were read."""
        library = self._library
        compute = or_older(  # drivers before 510
            library,
            lambda: library.nvmlDeviceGetComputeRunningProcesses_v3(handle),
            lambda: library.nvmlDeviceGetComputeRunningProcesses_v2(handle),
        )
        graphics = partial(library.nvmlDeviceGetGraphicsRunningProcesses_v3, handle)
        mps = partial(library.nvmlDeviceGetMPSComputeRunningProcesses_v3, handle)
        functions = {
            "processes": retried(library, compute),
            # A GPU or driver that cannot have such processes refuses the call: that is an empty list.
            "graphics processes": or_empty(library, retried(library, graphics), QUIET),
            "MPS processes": or_empty(library, retried(library, mps), QUIET),
        }
        lists = [call(library, what, function, problems) for what, function in functions.items()]
        return {int(process.pid) for found in lists for process in found or ()}, None not in lists

    def _in_node_namespace(self) -> bool:
        try:
            return str((self._proc / "self" / "ns" / "pid").readlink()) == NODE_PID_NAMESPACE
        except OSError:
            return False


def merged(parts: Iterable[GpuUsers]) -> GpuUsers:
    """The users of several devices together."""
    pods: dict[PodKey, set[int]] = {}
    strangers, complete = 0, True
    for part in parts:
        for pod, pids in part.pods.items():
            pods.setdefault(pod, set()).update(pids)
        strangers, complete = strangers + part.strangers, complete and part.complete
    return GpuUsers(pods, strangers, complete)


def cgroup_pod(text: str) -> CgroupPod | None:
    """The pod in the text of a /proc/PID/cgroup; None if the process is of no pod.

    Of several lines (cgroup version 1) the first with a pod counts: an unused controller stays at "/".

    Worked example: `0::/kubepods.slice/kubepods-podd01e4b6f_5a00_11e9_b385_42010a80018d.slice/cri-containerd-ID.scope`
    is `CgroupPod("d01e4b6f-5a00-11e9-b385-42010a80018d", "ID")`, where ID is 64 hexadecimal digits.
    """
    for line in text.splitlines():
        # hierarchy:controllers:path, and a path may hold colons.
        *_, path = line.split(":", 2)
        found = _pod_in_path(path.removesuffix(" (deleted)"))
        if found is not None:
            return found
    return None


def _pod_in_path(path: str) -> CgroupPod | None:
    uid: str | None = None
    for folder in path.split("/"):
        combined = _POD_AND_CONTAINER.fullmatch(folder)
        pod = _POD.fullmatch(combined["pod"] if combined else folder)
        if pod is not None and uid is None:
            uid = pod["uid"].replace("_", "-")
            if combined is not None:
                return CgroupPod(uid, combined["id"])
        elif uid is not None and (container := _CONTAINER.fullmatch(folder)) is not None:
            return CgroupPod(uid, container["id"])  # deeper folders are the container's own: crio-ID.scope/container
    return None if uid is None else CgroupPod(uid, None)
