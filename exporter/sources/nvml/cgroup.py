"""Whose a process is, by the text of its /proc/PID/cgroup: the UID of its pod and the id of its container.

It knows how kubelet and the container runtimes name control groups, in version 1 (a line per controller) and 2 (one
line), and opens no file. It refuses to guess: a path without a whole pod UID is no pod's, and a UID says nothing of the
pod's name, which somebody else knows.

Worked example: `0::/kubepods.slice/kubepods-podd01e4b6f_5a00_11e9_b385_42010a80018d.slice/cri-containerd-ID.scope` is
`Origin("d01e4b6f-5a00-11e9-b385-42010a80018d", "ID")`, where ID is 64 hexadecimal digits.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# kubelet's cgroupfs driver makes a folder `podUID`; its systemd driver a slice `…-podUID.slice` with "_" for "-"
# (pkg/kubelet/cm, convertCgroupNameToSystemd). A static pod's UID is 32 hexadecimal digits, the hash of its file.
# What is before that depends: kubelet's --cgroup-root (kind: /kubelet/kubepods), a runtime inside another, or, where
# the reader is in a cgroup namespace of its own, "/../.." instead of the path they share (cgroup_namespaces(7)).
_UID = r"[0-9a-f]{8}(?:(?P<dash>[-_])(?:[0-9a-f]{4}(?P=dash)){3}[0-9a-f]{12}|[0-9a-f]{24})"
_POD = re.compile(rf"(?:^|.*-)pod(?P<uid>{_UID})(?:\.slice)?")
# containerd: cri-containerd-ID.scope; CRI-O: crio-ID.scope, and crio-conmon-ID.scope for its monitor, which is nobody's
# GPU process; docker: docker-ID.scope; cgroupfs: ID alone.
_CONTAINER = re.compile(r"(?:(?:cri-containerd|crio|docker)-)?(?P<id>[0-9a-f]{64})(?:\.scope)?")
# containerd told to use systemd's names by a kubelet that is not: one folder `…-podUID.slice:cri-containerd:ID`.
_TOGETHER = re.compile(r"(?P<pod>[^:]+\.slice):(?:cri-containerd|crio|docker):(?P<id>[0-9a-f]{64})")


class Origin(NamedTuple):
    """pod_uid: as the API writes it, with dashes. container: 64 hexadecimal digits, or None where the path has none."""

    pod_uid: str
    container: str | None


def origin(text: str) -> Origin | None:
    """Where a process with this /proc/PID/cgroup runs, or None if that is no pod.

    Of several lines the first that names a pod counts: a controller that is not used stays at "/".
    """
    for line in text.splitlines():
        # hierarchy:controllers:path, and a path may hold colons.
        *_, path = line.split(":", 2)
        found = _in_path(path.removesuffix(" (deleted)"))
        if found is not None:
            return found
    return None


def _in_path(path: str) -> Origin | None:
    uid: str | None = None
    for folder in path.split("/"):
        together = _TOGETHER.fullmatch(folder)
        pod = _POD.fullmatch(together["pod"] if together else folder)
        if pod is not None and uid is None:
            uid = pod["uid"].replace("_", "-")
            if together is not None:
                return Origin(uid, together["id"])
        elif uid is not None and (container := _CONTAINER.fullmatch(folder)) is not None:
            return Origin(uid, container["id"])  # what is deeper is the container's own: crio-ID.scope/container
    return None if uid is None else Origin(uid, None)
