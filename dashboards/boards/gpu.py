"""Builds the board GPU: activity, memory, attribution and errors of every GPU and MIG instance.

Worked example: a GPU with 70 GB held and no activity for hours is in "Held and idle" with its pod: only activity is
work.
"""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from ..board import GPU, TO_GPU, Section, board, datasource, variable
from ..panels import GREY, Absence, Column, Panel, Query, Step, graph, rows, stat_of, timeline
from ..queries import AMBER, BLUE, GREEN, ORANGE, PURPLE, RED, TEAL

NODE = 'node=~"$node"'
# `.*` (All) also matches GPUs without a node label.
# A GPU with MIG instances has none of these metrics itself, only its instances have.
ANY = f'{{__name__=~"tidegate_gpu_(engine_active_ratio|utilization_ratio|memory_used_bytes)",{NODE}}}'
SINGLE = "node, uuid, mig_instance"
# Below this activity over 15 minutes a GPU is idle: drivers and probes alone cause a percent or two.
IDLE_RATIO = 0.05
HALF_FULL = 0.5
# Targets with GPUs are scraped from the start, whether they answer or not.
NO_GPUS = Absence(
    "not configured", 'count(tidegate_board_version) unless on () count(tidegate_scrapes_total{role="gpus"})'
)
ATTRIBUTIONS = {"exclusive": GREEN, "mig": BLUE, "process": TEAL, "device": AMBER, "no pod": GREY}
NAME = (Column("node", link=("This node", TO_GPU)), Column("uuid"), Column("mig_instance"))


def build() -> model.Dashboard:
    return board(
        GPU,
        "Tidegate / GPU",
        "Every GPU and MIG instance: activity, memory, attribution and errors.",
        [
            datasource(),
            variable(
                "node",
                "Node",
                "label_values(" + ANY.replace(f",{NODE}", "") + ", node)",
                several=True,
                description="Name from the GPUs' exporter. GPUs without one are shown with All.",
            ),
        ],
        [
            Section("Now", _now()),
            Section("Nodes", _nodes()),
            Section("Memory held, and work done", _residency()),
            Section("MIG", _mig(), collapsed=True),
            Section("Shared GPUs", _shared(), collapsed=True),
            Section("Errors", _errors()),
            Section("Power and heat", _power(), collapsed=True),
        ],
    )


def _gpu(metric: str, *labels: str, more: str = "") -> str:
    """A metric of GPUs, once per GPU or MIG instance."""
    return f"max by ({', '.join((SINGLE, *labels))}) (tidegate_gpu_{metric}{{{NODE}{more}}})"


def _attributed(series: str) -> str:
    """The same series, with words for an attribution to no pod."""
    return f'label_replace({series}, "attribution", "no pod", "attribution", "none")'


def _count(matchers: str) -> str:
    """Number of GPUs and MIG instances with these labels; 0 if there are only others."""
    found = ANY.replace("}", f",{matchers}}}")
    return f"count(group by ({SINGLE}) ({found})) or 0 * count(group by ({SINGLE}) ({ANY}))"


def _now() -> list[Panel]:
    active = _gpu("engine_active_ratio")
    return [
        stat_of(
            "GPUs",
            "Physical GPUs that a page shows, on the selected nodes. Fewer than allocatable below: an exporter is "
            "silent, see the failed targets of Tidegate itself.",
            "short",
            Query(f"count(group by (node, uuid) ({ANY}))"),
            absence=NO_GPUS,
        ),
        stat_of(
            "Active",
            f"GPUs and MIG instances with engine activity above {IDLE_RATIO:.0%} in the last sample. The "
            "others are free or idle; below are those that are held.",
            "short",
            Query(f"count({active} > {IDLE_RATIO}) or 0 * count({active})"),
            below=GREEN,
            absence=NO_GPUS,
        ),
        stat_of(
            "Without a pod",
            "GPUs and MIG instances without a pod's name: free, or the exporter does not label pods "
            "(DCGM_EXPORTER_KUBERNETES). A wake can use free ones at once.",
            "short",
            Query(_count('attribution="none"')),
            absence=NO_GPUS,
        ),
        stat_of(
            "Shared",
            "GPUs that several pods share. Their activity counts for one pod only if it is measured by process "
            "(docs/explanation/gpus.md).",
            "short",
            Query(_count('attribution=~"device|process"')),
            absence=NO_GPUS,
        ),
        stat_of(
            "MIG instances",
            "MIG instances; each is a GPU of its own to a pod. Their activity is engine activity only: GPU_UTIL does "
            "not cover instances.",
            "short",
            Query(_count('mig_instance!=""')),
            absence=NO_GPUS,
        ),
        stat_of(
            "Lost",
            "GPUs that are silent after a fatal Xid. Drain the node and reset the GPU. Runbook: TidegateGpuLost.",
            "short",
            Query(f"count(max by (uuid) (tidegate_gpu_lost{{{NODE}}}) == 1) or 0 * count(group by ({SINGLE}) ({ANY}))"),
            [Step(1, RED)],
            below=GREEN,
            absence=NO_GPUS,
        ),
    ]


def _nodes() -> list[Panel]:
    return [
        rows(
            "Nodes",
            "GPUs that Kubernetes can allocate (one resource for each MIG profile), those that pages show, and their "
            "activity. `ready` false: no pods start there. Allocatable and not seen: no exporter runs there, or it "
            "uses another node name (set its NODE_NAME).",
            [
                Query(f"max by (node, resource, ready) (tidegate_node_gpus_allocatable{{{NODE}}})", "allocatable"),
                Query(f"count by (node) (group by (node, uuid) ({ANY}))", "seen"),
                Query(f"count by (node) ({_gpu('engine_active_ratio')} > {IDLE_RATIO})", "active"),
                Query(f"avg by (node) ({_gpu('engine_active_ratio')})", "mean activity"),
            ],
            [
                Column("node", link=("This node", TO_GPU)),
                Column("resource"),
                Column("ready"),
                Column("allocatable"),
                Column("seen"),
                Column("active"),
                Column("mean activity", unit="percentunit", decimals=0),
            ],
        ),
        graph(
            "Mean activity by node",
            "Mean engine activity of a node's GPUs. One idle node beside full ones: its pods get no requests, or it "
            "is not ready.",
            "percentunit",
            [Query(f"avg by (node) ({_gpu('engine_active_ratio')})", "{{node}}")],
            top=1.0,
        ),
        graph(
            "Activity of each GPU",
            "Engine activity of each GPU and MIG instance. Select a node to read it. All at 1: too few replicas; all "
            "at some percent under load: bound by something else, such as network or CPU.",
            "percentunit",
            [Query(_gpu("engine_active_ratio"), "{{node}} {{uuid}} {{mig_instance}}")],
            legend=False,
            top=1.0,
        ),
        graph(
            "GPUs by how pods use them",
            "How the numbers of each GPU are attributed to pods: exclusive, a MIG instance, measured by process, or "
            "device-wide (no pod's share). `no pod`: none is named.",
            "short",
            [
                Query(
                    f"count by (attribution) ({_attributed(f'group by ({SINGLE}, attribution) ({ANY})')})",
                    "{{attribution}}",
                )
            ],
            stacked=True,
            colours=ATTRIBUTIONS,
        ),
    ]


def _residency() -> list[Panel]:
    used = f"{_gpu('memory_used_bytes')} / {_gpu('memory_total_bytes')}"
    quiet = f"max by ({SINGLE}) (avg_over_time(tidegate_gpu_engine_active_ratio{{{NODE}}}[15m])) < {IDLE_RATIO}"
    idle = f"({used}) > {HALF_FULL} and on ({SINGLE}) {quiet}"
    return [
        graph(
            "Memory held and engine activity",
            "Means over the selected nodes. The distance of the lines is memory that is held without work: engines "
            "allocate it at start and keep it. So memory is never a measure of load.",
            "percentunit",
            [Query(f"avg({used})", "memory held"), Query(f"avg({_gpu('engine_active_ratio')})", "active")],
            top=1.0,
            colours={"memory held": PURPLE, "active": GREEN},
        ),
        rows(
            "Held and idle",
            f"More than half of its memory is held, its engine active for less than {IDLE_RATIO:.0%} of the last "
            "15 minutes. Let Tidegate scale that workload, or ask its owner.",
            [
                Query(idle, "memory held"),
                Query(
                    f"{_attributed(_gpu('memory_used_bytes', 'namespace', 'pod', 'attribution'))}"
                    f" and on ({SINGLE}) ({idle})",
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
            "All GPUs",
            "Each GPU and MIG instance with its pods and numbers. An empty cell is not on its page. Without any "
            "activity: let the exporter collect DCGM_FI_PROF_GR_ENGINE_ACTIVE.",
            [
                Query(_attributed(f"group by ({SINGLE}, model, profile, namespace, pod, attribution) ({ANY})")),
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
            "Activity of MIG instances",
            "An instance of several slices may reach only the dashed line, because one busy compute instance fills "
            "one slice. A workload with a target above its ceiling never scales up by activity: lower the target.",
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
            "Number of instances of each profile, and of those with a pod. No free one of the profile of a sleeping "
            "workload: its wake waits for a node.",
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
            "Pods on each shared GPU",
            "Pods that share a GPU by time slicing or MPS. Its other numbers are the sum of theirs.",
            "short",
            [Query(_gpu("sharers", "attribution"), "{{node}} {{uuid}} ({{attribution}})")],
            width=8,
        ),
        graph(
            "Utilization by pod",
            "Share of time with a kernel of the pod on a GPU that it shares. It proves idleness and sizes nothing. "
            "Empty with sharers: let the exporter measure by process (docs/explanation/gpus.md).",
            "percentunit",
            [Query(process % "utilization_ratio", "{{namespace}}/{{pod}}")],
            width=8,
            top=1.0,
        ),
        graph(
            "Memory by pod",
            "Memory of the pod's processes on a GPU that it shares. The largest one limits how many pods fit.",
            "bytes",
            [Query(process % "memory_used_bytes", "{{namespace}}/{{pod}}")],
            width=8,
        ),
    ]


def _errors() -> list[Panel]:
    return [
        rows(
            "GPUs with errors (Xid)",
            "The last Xid code of each GPU that has one; it stays until the GPU is reset, so it may be old. 48, 63, "
            "64, 74, 79, 94 and 95 are hardware errors: drain the node and reset or replace the GPU. 13, 31 and 43 "
            "are errors of the program. Runbook: TidegateGpuLost.",
            [Query(f"{_gpu('last_xid', 'model')} > 0", "last Xid"), Query(_gpu("lost"), "lost")],
            [*NAME, Column("model"), Column("last Xid"), Column("lost", steps=[Step(1, RED)])],
        ),
        timeline(
            "New errors and lost GPUs",
            "Changes of the last Xid of a GPU, and the time while it is lost: a fatal code and no activity since.",
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
            "Power of a node's GPUs. An idle GPU that holds a model still draws some 70 W.",
            "watt",
            [Query(f"sum by (node) ({_gpu('power_watts')})", "{{node}}")],
        ),
        graph(
            "Hottest GPU of each node",
            "GPUs throttle at about 85 °C (dashed; the exact value depends on the model). Near it: check the airflow "
            "before you add replicas there.",
            "celsius",
            [Query(f"max by (node) (tidegate_gpu_temperature_celsius{{{NODE}}})", "{{node}}")],
            above=[Step(85, RED)],
        ),
    ]
