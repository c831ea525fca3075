"""Members of groups that contradict each other: whose words cost him his workload, and what his calls hear. Pure.

Groups are of names in one namespace, whoever wrote them: the configuration, triggers, annotations. The configuration is
right by now, or was refused; of two others the later by its key is at fault.

Worked example: the triggers of `ai/d1` and `ai/d2` bound role decode differently: `ai/d2` makes no workload, its object
has a Trouble at `spec.triggers.0.metadata.ratio` that names `ai/d1`, and KEDA's calls for it hear the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from exporter.model import WorkloadKey

from ..config import Workload
from ..config.bad_words import BadWord
from ..config.group_checks import group_faults
from ..config.trigger import PREFIXES
from .annotations import Noted
from .claims import Doubt, Refused, Said
from .record import Trouble, trouble
from .scaled import Gathered


def contradictions(
    configured: Sequence[Workload], made: Sequence[Workload], gathered: Gathered, notes: Sequence[Noted]
) -> tuple[dict[WorkloadKey, BadWord], tuple[Trouble, ...]]:
    """What is wrong between workloads, of which `made` are those of the cluster's objects.

    Returns whom it costs its workload, with the word that does, and all Troubles.
    """
    refs = {note.workload.key: note.ref for note in notes if note.workload is not None}
    wrong: dict[WorkloadKey, BadWord] = {}
    troubles: list[Trouble] = []
    for fault in group_faults((*configured, *made)):
        if fault.member < len(configured):
            continue
        key, word = made[fault.member - len(configured)].key, ".".join(str(part) for part in fault.key)
        triggered = key in gathered.makers
        said = BadWord(PREFIXES["metadata" if triggered else "annotations"] + word, fault.message, None, fault.severity)
        ref = gathered.makers[key].ref if triggered else refs[key]
        troubles.append(trouble(ref, said, f"spec.triggers.{gathered.places[key]}." if triggered else ""))
        if fault.severity == "error":
            wrong.setdefault(key, said)
    return wrong, tuple(troubles)


def without(said: Sequence[Said], wrong: dict[WorkloadKey, BadWord]) -> tuple[Said, ...]:
    """The same triggers, where those that cost a workload speak for nobody."""
    return tuple(
        Said(each.words, Refused(Doubt.WORDS, str(wrong[each.outcome])))
        if isinstance(each.outcome, WorkloadKey) and each.outcome in wrong
        else each
        for each in said
    )
