"""Which device each series of a GPU page is of, and who is named beside it.

A device is a (UUID, MIG instance). It knows labels as dcgm-exporter and Prometheus write them, and no values: what a
family means is `dcgm`'s. Several series of one family and device are copies, parts, or a device and its parts; that
is for `dcgm` to tell, by whose pod each names.

Worked example: `{UUID="GPU-1::0",pod="a"}` and `{UUID="GPU-1::1",pod="b"}` are one device, shared, of pods a and b;
`{UUID="GPU-2",GPU_I_ID="3"}` is an instance, and brings a parent `GPU-2` along for what it repeats of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from exporter.model import PodKey
from exporter.textformat import Layout

from .words import Labels

# Whose pod a series names: through Prometheus (honorLabels: false) the workload's is `exported_pod` and the bare one
# is the exporter's; under --use-old-namespace it is `pod_name`. What one series of a page has, holds for the page.
POD_LABELS = (("exported_namespace", "exported_pod"), ("pod_namespace", "pod_name"), ("namespace", "pod"))
EXPORTER = "dcgm-exporter"  # with honorLabels: true, Prometheus names the exporter's own pod on GPUs that have none


@dataclass(slots=True)
class Device:
    """One (UUID, instance) while its layout is compiled. series: name -> (index, its pod)."""

    labels: Labels
    series: dict[str, list[tuple[int, PodKey | None]]]
    shared: bool = False
    implied: bool = False

    def pods(self) -> list[PodKey]:
        return sorted({pod for members in self.series.values() for _, pod in members if pod is not None})


Devices: TypeAlias = dict[tuple[str, str | None], Device]


def devices_of(layout: Layout, ours: Sequence[int], repeated: frozenset[str]) -> Devices:
    """The devices of a page's series, in the page's order, the parent of MIG instances before them.

    ours: indices of the series that may be of GPUs. repeated: families in which instances repeat their parent.
    """
    labels = {index: layout.series[index].labels for index in ours}
    namespace, pod = next(
        (names for names in POD_LABELS if any(names[1] in said for said in labels.values())), POD_LABELS[-1]
    )
    devices: Devices = {}
    for index, said in labels.items():
        uuid, replica, _ = (said.get("UUID") or said.get("uuid") or "").partition("::")
        if not uuid:  # NVLink, NvSwitch and CPU series: no GPU's
            continue
        device = devices.setdefault((uuid, said.get("GPU_I_ID") or None), Device(said, {}))
        name = said.get(pod, "")
        holder = PodKey(said.get(namespace, ""), name) if name and EXPORTER not in name else None
        device.series.setdefault(layout.names[index], []).append((index, holder))
        device.shared |= bool(said.get("vgpu") or replica)
    for device in devices.values():
        device.shared |= len(device.pods()) > 1
    return _with_parents(devices, repeated)


def _with_parents(devices: Devices, repeated: frozenset[str]) -> Devices:
    """The devices, with the parent of MIG instances before them: its own series if the page has any, else what the
    instances repeat of it. No pod holds it: whoever is named beside it holds an instance.
    """
    families: dict[str, list[Device]] = {}
    for (uuid, instance), device in devices.items():
        if instance is not None:
            families.setdefault(uuid, []).append(device)
    found: Devices = {}
    for (uuid, instance), device in devices.items():
        if uuid in families and (uuid, None) not in found:
            parent = _parent(devices.get((uuid, None)), families[uuid], repeated)
            if parent.series:
                found[uuid, None] = parent
        if instance is not None or uuid not in families:
            found[uuid, instance] = device
    return found


def _parent(own: Device | None, instances: Sequence[Device], repeated: frozenset[str]) -> Device:
    """The parent of MIG instances, by its own series (None: the page has none) and by what they repeat of it."""
    said = instances[0].labels if own is None else own.labels
    labels = {name: text for name, text in said.items() if not name.startswith("GPU_I_")}
    series = {} if own is None else {name: _nobodys(members) for name, members in own.series.items()}
    for name, members in [each for device in instances for each in device.series.items()]:
        if name in repeated and (own is None or name not in own.series):
            series[name] = series.get(name, []) + _nobodys(members)
    return Device(labels, series, implied=own is None)


def _nobodys(members: Sequence[tuple[int, PodKey | None]]) -> list[tuple[int, PodKey | None]]:
    return [(index, None) for index, _ in members]
