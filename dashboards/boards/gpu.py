"""GPU: what every GPU and MIG instance does, whose it is, and how that is known.

Worked example: a GPU with 70 GB held and an activity of 0 for hours stands in "Held and idle" with the pod that holds
it: memory is residency, and only activity is work.
"""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from ..board import GPU, TO_GPU, Section, board, datasource, variable
from ..panels import Column, Panel, Query, Step, graph, rows, stat_of, timeline
from ..words import AMBER, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, TEAL

NODE = 'node=~"$node"'
# A GPU whose node nobody names has no such label: All, which is `.*`, takes it in.
# Of a GPU that is cut up its instances say these, and the GPU itself only its power and the like: it is no unit.
ANY = f'{{__name__=~"tidegate_gpu_(engine_active_ratio|utilization_ratio|memory_used_bytes)",{NODE}}}'
SINGLE = "node, uuid, mig_instance"
# Below this share of its time over 15 minutes a GPU is at rest: drivers and probes alone make a percent or two.
AT_REST = 0.05
HALF_FULL = 0.5
ATTRIBUTIONS = {"exclusive": GREEN, "mig": BLUE, "process": TEAL, "device": AMBER, "none": GREY}
NAME = (Column("node", link=("This node", TO_GPU)), Column("uuid"), Column("mig_instance"))


def made() -> model.Dashboard:
    return board(
        GPU,
        "Tidegate / GPU",
        "Every GPU and MIG instance that a page shows: what it does, what it holds, whose it is and how that is known.",
        [
            datasource(),
            variable(
                "node",
                "Node",
                "label_values(" + ANY.replace(f",{NODE}", "") + ", node)",
                several=True,
                says="As the GPUs' exporter names it. GPUs whose exporter names no node are shown with All.",
            ),
        ],
        [
            Section("Now", _now()),
            Section("Nodes", _nodes()),
            Section("Residency against activity", _residency()),
            Section("MIG", _mig()),
            Section("Shared GPUs", _shared()),
            Section("Errors", _errors()),
            Section("Power and heat", _power()),
        ],
    )


def _gpu(metric: str, *labels: str, more: str = "") -> str:
    """A metric of GPUs, once per GPU or MIG instance, whichever replica of Tidegate shows it."""
    return f"max by ({', '.join((SINGLE, *labels))}) (tidegate_gpu_{metric}{{{NODE}{more}}})"


def _count(matchers: str) -> str:
    """GPUs and MIG instances with these labels; 0 where there are GPUs, and none with them."""
    found = ANY.replace("}", f",{matchers}}}")
    return f"count(group by ({SINGLE}) ({found})) or 0 * count(group by ({SINGLE}) ({ANY}))"


def _now() -> list[Panel]:
    active = _gpu("engine_active_ratio")
    return [
        stat_of(
            "GPUs seen",
            "Physical GPUs that some page shows now, on the chosen nodes. Fewer than are allocatable below: an "
            "exporter is silent, see the failing targets of Tidegate itself.",
            "short",
            Query(f"count(group by (node, uuid) ({ANY}))"),
        ),
        stat_of(
            "At work",
            f"GPUs and MIG instances whose engine was active for more than {AT_REST:.0%} of the last collection. The "
            "rest is free, asleep or waiting; below see which of it is held.",
            "short",
            Query(f"count({active} > {AT_REST}) or 0 * count({active})"),
            below=GREEN,
        ),
        stat_of(
            "Held by nobody",
            "GPUs and MIG instances that no pod is named beside: free, or the exporter does not label pods "
            "(DCGM_EXPORTER_KUBERNETES). Free ones are what a wake finds at once.",
            "short",
            Query(_count('attribution="none"')),
        ),
        stat_of(
            "Shared",
            "GPUs that several pods share. Only where it is measured by process does their activity mean something for "
            "one of them (docs/explanation/gpus.md).",
            "short",
            Query(_count('attribution=~"device|process"')),
        ),
        stat_of(
            "MIG instances",
            "Instances of GPUs that are cut up; each is a GPU of its own to a pod. Their activity is by engine alone: "
            "GPU_UTIL says nothing of an instance.",
            "short",
            Query(_count('mig_instance!=""')),
        ),
        stat_of(
            "Lost",
            "GPUs that fell silent after a fatal Xid. Drain the node and reset the GPU. Runbook: TidegateGpuLost.",
            "short",
            Query(f"count(max by (uuid) (tidegate_gpu_lost{{{NODE}}}) == 1) or 0 * count(group by ({SINGLE}) ({ANY}))"),
            [Step(1, RED)],
            below=GREEN,
        ),
    ]


def _nodes() -> list[Panel]:
    return [
        rows(
            "Nodes",
            "What Kubernetes may give to pods (a resource of its own for each MIG profile), what pages show, and how "
            "active it is. `ready` false: nothing new is started there. Allocatable and not seen: no exporter runs "
            "there, or it names the node otherwise (set its NODE_NAME).",
            [
                Query(f"max by (node, resource, ready) (tidegate_node_gpus_allocatable{{{NODE}}})", "allocatable"),
                Query(f"count by (node) (group by (node, uuid) ({ANY}))", "seen"),
                Query(f"count by (node) ({_gpu('engine_active_ratio')} > {AT_REST})", "at work"),
                Query(f"avg by (node) ({_gpu('engine_active_ratio')})", "mean activity"),
            ],
            [
                Column("node", link=("This node", TO_GPU)),
                Column("resource"),
                Column("ready"),
                Column("allocatable"),
                Column("seen"),
                Column("at work"),
                Column("mean activity", unit="percentunit", decimals=0),
            ],
        ),
        graph(
            "Mean activity by node",
            "Engine activity, mean over a node's GPUs. One node at rest beside others that are full: its pods get no "
            "requests, or it is not ready.",
            "percentunit",
            [Query(f"avg by (node) ({_gpu('engine_active_ratio')})", "{{node}}")],
            top=1.0,
        ),
        graph(
            "Activity of each GPU",
            "Engine activity of each GPU and MIG instance. Choose a node to read it. All at 1: sized too small; all at "
            "some percent under load: bound by something else, as the network or the processor.",
            "percentunit",
            [Query(_gpu("engine_active_ratio"), "{{node}} {{uuid}} {{mig_instance}}")],
            legend=False,
            top=1.0,
        ),
        graph(
            "GPUs by whose they are",
            "How each GPU's numbers came to be a pod's: exclusive, a MIG instance, measured by process, or the whole "
            "device's (nobody's share). `none`: no pod is named beside it.",
            "short",
            [Query(f"count by (attribution) (group by ({SINGLE}, attribution) ({ANY}))", "{{attribution}}")],
            stacked=True,
            colours=ATTRIBUTIONS,
        ),
    ]


def _residency() -> list[Panel]:
    used = f"{_gpu('memory_used_bytes')} / {_gpu('memory_total_bytes')}"
    quiet = f"max by ({SINGLE}) (avg_over_time(tidegate_gpu_engine_active_ratio{{{NODE}}}[15m])) < {AT_REST}"
    idle = f"({used}) > {HALF_FULL} and on ({SINGLE}) {quiet}"
    return [
        graph(
            "Memory held and engine activity",
            "Means over the chosen nodes. The distance between the lines is memory that is held and does no work: "
            "engines take it at start and keep it. It is why memory is never load here.",
            "percentunit",
            [Query(f"avg({used})", "memory held"), Query(f"avg({_gpu('engine_active_ratio')})", "active")],
            top=1.0,
            colours={"memory held": PURPLE, "active": GREEN},
        ),
        rows(
            "Held and idle",
            f"More than half of its memory is held and its engine was active for less than {AT_REST:.0%} of the last "
            "15 minutes. Somebody keeps it: let Tidegate scale that workload, or ask its owner.",
            [
                Query(idle, "memory held"),
                Query(
                    f"{_gpu('memory_used_bytes', 'namespace', 'pod', 'attribution')} and on ({SINGLE}) ({idle})",
                    "bytes",
                ),
            ],
            [
                *NAME,
                Column("namespace"),
                Column("pod"),
                Column("attribution"),
                Column("memory held", unit="percentunit", decimals=0),
                Column("bytes", unit="bytes"),
            ],
            sort="memory held",
        ),
        rows(
            "Every GPU",
            "Each GPU and MIG instance with its pods and numbers. An empty cell is not said by its page. No activity "
            "column at all: have the exporter collect DCGM_FI_PROF_GR_ENGINE_ACTIVE.",
            [
                Query(f"group by ({SINGLE}, model, profile, namespace, pod, attribution) ({ANY})"),
                Query(_gpu("engine_active_ratio"), "active"),
                Query(used, "memory held"),
                Query(_gpu("utilization_ratio"), "any kernel"),
                Query(_gpu("power_watts"), "power"),
                Query(_gpu("last_xid"), "last Xid"),
            ],
            [
                *NAME,
                Column("model"),
                Column("profile"),
                Column("namespace"),
                Column("pod"),
                Column("attribution"),
                Column("active", unit="percentunit", decimals=0),
                Column("any kernel", unit="percentunit", decimals=0),
                Column("memory held", unit="percentunit", decimals=0),
                Column("power", unit="watt", decimals=0),
                Column("last Xid", steps=[Step(1, ORANGE)]),
            ],
            width=24,
            height=10,
        ),
    ]


def _mig() -> list[Panel]:
    return [
        graph(
            "Activity of MIG instances against their ceiling",
            "An instance of several slices may top at the dashed line, because one busy compute instance fills one "
            "slice. A workload whose target is above its ceiling never scales up by activity: lower the target.",
            "percentunit",
            [
                Query(_gpu("engine_active_ratio", "profile", more=_INSTANCES), "{{uuid}} {{mig_instance}} {{profile}}"),
                Query(f"max by (profile) (tidegate_gpu_engine_ceiling_ratio{{{NODE}}})", "ceiling of {{profile}}"),
            ],
            top=1.0,
            dashed=["ceiling of .*"],
        ),
        graph(
            "MIG instances by profile",
            "How many instances of each profile there are, and how many of them a pod holds. None free of the profile "
            "that a sleeper asks for: its wake will wait for a node.",
            "short",
            [
                Query(f"count by (profile) ({_gpu('memory_used_bytes', 'profile', more=_INSTANCES)})", "{{profile}}"),
                Query(
                    f"count by (profile) ({_gpu('memory_used_bytes', 'profile', more=_INSTANCES + _HELD)})",
                    "{{profile}} held",
                ),
            ],
            dashed=[".* held"],
        ),
    ]


_INSTANCES = ',mig_instance!=""'
_HELD = ',attribution!="none"'


def _shared() -> list[Panel]:
    process = f"max by (uuid, namespace, pod) (tidegate_gpu_process_%s{{{NODE}}})"
    return [
        graph(
            "Sharers of each GPU",
            "Pods that share a GPU by time slicing or MPS. Its other numbers are all of theirs together.",
            "short",
            [Query(_gpu("sharers", "attribution"), "{{node}} {{uuid}} ({{attribution}})")],
            width=8,
        ),
        graph(
            "Kernels by pod, where it is measured",
            "Share of time that any kernel of the pod ran on a GPU that it shares. It proves that a pod is idle, and "
            "sizes nothing. Empty beside sharers: have the exporter measure by process (docs/explanation/gpus.md).",
            "percentunit",
            [Query(process % "utilization_ratio", "{{namespace}}/{{pod}}")],
            width=8,
            top=1.0,
        ),
        graph(
            "Memory by pod, where it is measured",
            "What the pod's processes hold of a GPU that it shares. Who holds most decides how many fit.",
            "bytes",
            [Query(process % "memory_used_bytes", "{{namespace}}/{{pod}}")],
            width=8,
        ),
    ]


def _errors() -> list[Panel]:
    return [
        rows(
            "GPUs with an Xid",
            "The last Xid code of each GPU that has one; it stands until the GPU is reset, so it may be old. 48, 63, "
            "64, 74, 79, 94 and 95 are hardware: drain the node and reset or replace. 13, 31 and 43 are the program's. "
            "Runbook: TidegateGpuLost.",
            [
                Query(f"{_gpu('last_xid', 'model')} > 0", "last Xid"),
                Query(_gpu("lost"), "lost"),
            ],
            [*NAME, Column("model"), Column("last Xid"), Column("lost", steps=[Step(1, RED)])],
        ),
        timeline(
            "New Xids and lost GPUs",
            "When the last Xid of a GPU changed, and while it is lost: a fatal code, and no activity since.",
            [
                Query(f"2 * {_gpu('lost')}", "{{node}} {{uuid}} lost"),
                Query(
                    f"max by ({SINGLE}) (changes(tidegate_gpu_last_xid{{{NODE}}}[5m])) > bool 0 > 0",
                    "{{node}} {{uuid}} new Xid",
                ),
            ],
            {1.0: ("new Xid", ORANGE), 2.0: ("lost", RED)},
            width=12,
            height=8,
        ),
    ]


def _power() -> list[Panel]:
    return [
        graph(
            "Power by node",
            "Power drawn by a node's GPUs together. A GPU that holds a model and does nothing still draws some 70 W.",
            "watt",
            [Query(f"sum by (node) ({_gpu('power_watts')})", "{{node}}")],
        ),
        graph(
            "Hottest GPU of each node",
            "GPUs slow down at about 85 °C (dashed; the exact value is the model's). Near it: look at the airflow "
            "before you add replicas there.",
            "celsius",
            [Query(f"max by (node) (tidegate_gpu_temperature_celsius{{{NODE}}})", "{{node}}")],
            above=[Step(85, RED)],
        ),
    ]
