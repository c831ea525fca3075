"""Which pods work on a GPU, by its processes, and so what its numbers may be said to be.

NVML lists processes, /proc says of which pod each is, and somebody else knows the pod's name by its UID. That takes the
node's own process numbers: in a PID namespace of its own a container sees numbers of the node that mean somebody else
here, or numbers changed by the driver (some drivers do the one, some the other), so then nobody is named at all.
A GPU is in use by its processes, not by whom it was given to: an allocated GPU that nothing has opened is nobody's.

Worked example: processes 4711 and 4712 are both of pod ai/chat-0, and there are no others: EXCLUSIVE. With a third of
pod ai/embed-0, and processes that used the GPU for 0.5 and 0.2 of the time while it was busy for 0.7: PROCESS; while it
was busy for 0.95, DEVICE.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from exporter.model import Attribution, PodKey

from .asking import ask, growing
from .cgroup import origin
from .library import FUNCTION_MISSING, QUIET, Library, NvmlCode, code_of

# The initial PID namespace has this number on every Linux (include/linux/proc_ns.h, PROC_PID_INIT_INO).
NODE_PID_NAMESPACE = "pid:[4026531836]"
# The device's figure is of its last second at most (nvml.h), the processes' of the time since they were last asked for.
SLACK = 0.1


# A pod by the UID that the API gave it; None if that is nobody's.
PodOf: TypeAlias = Callable[[str], PodKey | None]


class Held(NamedTuple):
    """pods: the pods with processes on a GPU, and which. strangers: how many processes are of no pod that is known.

    complete: whether every list of processes was had; if not, there may be others.
    """

    pods: Mapping[PodKey, Collection[int]]
    strangers: int
    complete: bool

    @property
    def empty(self) -> bool:
        """Whether it is known that no process has the GPU open."""
        return self.complete and not self.pods and not self.strangers


class Holders:
    """Asks who is on a GPU. `pod_of` is asked in the thread that asks NVML.

    proc: where the node's processes are.
    """

    def __init__(self, library: Library, pod_of: PodOf, proc: Path) -> None:
        self._library = library
        self._pod_of = pod_of
        self._proc = proc
        self._heard: dict[str, int] = {}  # by the GPU's UUID: time of the newest utilisation sample, microseconds

    def of(self, handle: Any, told: list[str]) -> Held:
        """Whose processes are on a GPU or MIG device. Raises Lost, Shut."""
        pids, complete = self._pids(handle, told)
        if not self._numbers_are_the_nodes():
            told.append(
                "whose its processes are is not known: not in the node's PID namespace (hostPID: true is needed)"
            )
            return Held({}, len(pids), complete)
        pods: dict[PodKey, set[int]] = {}
        strangers = 0
        for pid in sorted(pids):
            try:
                found = origin((self._proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace"))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended
            except OSError as error:
                told.append(f"process {pid}: {error.strerror}")
                found = None
            pod = self._pod_of(found.pod_uid) if found is not None else None
            if pod is None:
                strangers += 1
                told.append(
                    f"process {pid} is of no pod" if found is None else f"pod {found.pod_uid} is not known by name"
                )
            else:
                pods.setdefault(pod, set()).add(pid)
        return Held(pods, strangers, complete)

    def attribution(self, held: Held, handle: Any, uuid: str, busy: float, told: list[str]) -> Attribution:
        """What the numbers of a whole GPU are. `busy`: its utilisation, NaN if not known. Raises Lost, Shut."""
        if not held.pods:
            return Attribution.NONE
        if held.strangers or not held.complete:
            return Attribution.DEVICE
        if len(held.pods) == 1:
            return Attribution.EXCLUSIVE
        return Attribution.PROCESS if self._adds_up(held, handle, uuid, busy, told) else Attribution.DEVICE

    def _adds_up(self, held: Held, handle: Any, uuid: str, busy: float, told: list[str]) -> bool:
        """Whether what the processes did is what the GPU did; nothing was measured where nothing was done."""
        parts = self._utilisation(handle, uuid, told)
        used = sum(parts.get(pid, 0.0) for pids in held.pods.values() for pid in pids)
        return used > 0.0 and abs(used - busy) <= SLACK  # false where the device does not say: NaN

    def _utilisation(self, handle: Any, uuid: str, told: list[str]) -> Mapping[int, float]:
        """Ratio of time by process, of those that did anything since they were last asked for."""
        since = self._heard.get(uuid, 0)
        question = growing(self._library, lambda: self._library.nvmlDeviceGetProcessUtilization(handle, since))
        # pynvml raises an error of value 0 where the driver has no samples, which the driver calls a success.
        question = _or_nothing(self._library, question, {NvmlCode.SUCCESS, NvmlCode.NOT_FOUND})
        samples = ask(self._library, "utilisation by process", question, told) or ()
        newest: dict[int, Any] = {}
        for sample in samples:
            before = newest.get(sample.pid)
            if sample.smUtil <= 100 and (before is None or sample.timeStamp > before.timeStamp):  # noqa: PLR2004
                newest[sample.pid] = sample
        self._heard[uuid] = max([since, *(sample.timeStamp for sample in newest.values())])
        return {pid: sample.smUtil / 100.0 for pid, sample in newest.items()}

    def _pids(self, handle: Any, told: list[str]) -> tuple[set[int], bool]:
        library = self._library

        def compute() -> Any:
            try:
                return library.nvmlDeviceGetComputeRunningProcesses_v3(handle)
            except library.NVMLError as error:
                if code_of(error) not in FUNCTION_MISSING:  # drivers before 510
                    raise
                return library.nvmlDeviceGetComputeRunningProcesses_v2(handle)

        found = ask(library, "processes", growing(library, compute), told)
        pids = {int(process.pid) for process in found or ()}
        complete = found is not None
        for what, listed in (
            ("graphics processes", library.nvmlDeviceGetGraphicsRunningProcesses_v3),
            ("MPS processes", library.nvmlDeviceGetMPSComputeRunningProcesses_v3),
        ):
            # A GPU or driver that has no such processes refuses the question: that is an empty list.
            question = _or_nothing(library, growing(library, partial(listed, handle)), QUIET)
            found = ask(library, what, question, told)
            pids |= {int(process.pid) for process in found or ()}
            complete &= found is not None
        return pids, complete

    def _numbers_are_the_nodes(self) -> bool:
        try:
            return str((self._proc / "self" / "ns" / "pid").readlink()) == NODE_PID_NAMESPACE
        except OSError:
            return False


def _or_nothing(library: Library, question: Callable[[], Any], codes: Collection[int]) -> Callable[[], Any]:
    """The question, with an empty answer where it is refused with one of these codes."""

    def asked() -> Any:
        try:
            return question()
        except library.NVMLError as error:
            if code_of(error) not in codes:
                raise
            return ()

    return asked
