"""Finds workloads of one run that count the same queue of one gateway. Pure.

The daemon compares all workloads in the order of its registry: those of the configuration, then those of ScaledObjects
and ScaledJobs, then those of annotations, each by key. The later of two workloads has the finding. Objects that are
missing from the run can only add findings, so a single file is enough for those that it has.

Worked example: the triggers `{engine: vllm, gateway: epp}` and `{engine: vllm, gateway: epp, model: llama}` of one
ScaledObject give the second one a warning TG087 at `spec.triggers.1.metadata.gateway`: without a model, the first
workload counts the requests for every model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from exporter.model import WorkloadKey
from scaler.config.errors import Finding, Loc
from scaler.config.model import Config
from scaler.config.trigger import TriggerWorkload
from scaler.config.validate_workload import same_queue_faults

from .objects import SCALED, LintObject


class QueueReader(NamedTuple):
    """A workload that an object defines. gateway: the object's key that names its gateway."""

    obj: LintObject
    workload: TriggerWorkload
    gateway: Loc


def shared_queues(config: Config | None, readers: Iterable[QueueReader]) -> dict[LintObject, list[Finding]]:
    """Findings by object. config: of the daemon that will read the objects, if known.

    If several objects define one workload, only the first one counts.
    """
    configured = () if config is None else config.workloads
    defined: dict[WorkloadKey, QueueReader] = {}
    for reader in sorted(readers, key=lambda each: (each.obj.kind in SCALED, each.workload.key)):
        defined.setdefault(reader.workload.key, reader)
    in_config = {workload.key for workload in configured}  # it takes precedence
    found = [reader for key, reader in defined.items() if key not in in_config]
    findings: defaultdict[LintObject, list[Finding]] = defaultdict(list)
    for fault in same_queue_faults((*configured, *(reader.workload for reader in found))):
        if fault.member >= len(configured):
            reader = found[fault.member - len(configured)]
            findings[reader.obj].append(Finding(reader.gateway, fault.message, rule=fault.rule))
    return findings
