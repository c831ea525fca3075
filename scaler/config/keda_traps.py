"""What of KEDA's own words works against scaling to zero, where a ScaledObject carries it: fallback, pauses, cron.

Observed on KEDA 2.19.0 and 2.20.2: a fallback marks the trigger active, so it lifts zero to its count; with a count of
zero its error no longer blocks scaling to zero; it never engages while GetMetricSpec fails, that is, while the scaler
is wholly unreachable. Unpausing after the cooldown is over scales to zero within the second.

Worked example: a ScaledObject with the annotation `autoscaling.keda.sh/paused: "true"` and a minReplicaCount of 0 has
one warning, at that annotation, which names `tidegate.dev/brake` as the way to hold replicas.
"""

from __future__ import annotations

from collections.abc import Iterator

from .documents import DocumentValue
from .remark import Remark
from .rules import CRON_BESIDE, FALLBACK, PAUSED
from .workload import Replicas

_ANNOTATIONS = ("metadata", "annotations")
_PAUSED = "autoscaling.keda.sh/paused"
_BETTER = 'tidegate.dev/brake: "freeze until ..." holds it and ends by itself'
_UNREACHED = "and none engages while Tidegate cannot be reached at all"


def fallback_remarks(thing: DocumentValue, replicas: Replicas | None) -> Iterator[Remark]:
    """replicas: the ScaledObject's bounds; None where they are not known."""
    if thing.at("spec", "fallback") is None:
        return
    at, count = ("spec", "fallback"), thing.count("spec", "fallback", "replicas")
    sleeps = replicas is None or replicas.sleeps
    if count == 0 and sleeps:
        message = f"goes to zero when Tidegate knows nothing, under load too, {_UNREACHED}"
    elif sleeps:
        message = f"wakes every sleeper when Tidegate knows nothing, {_UNREACHED}"
    else:
        message = f"sets a number of replicas, whatever the load, when Tidegate knows nothing, {_UNREACHED}"
    yield Remark(at, f"{message}: without it KEDA keeps what there is", "warning", rule=FALLBACK)


def pause_remarks(thing: DocumentValue, replicas: Replicas | None) -> Iterator[Remark]:
    """Pauses are KEDA's: Tidegate is not asked while they last, and they have no end."""
    sleeps = replicas is None or replicas.sleeps
    for key, value in thing.below(*_ANNOTATIONS).items():
        if value.text == "false":
            continue
        message = {
            _PAUSED: "takes the HPA away; unpaused after its cooldownPeriod, it drops to zero at once"
            if sleeps
            else "takes the HPA away, and nothing is scaled until it is taken back",
            f"{_PAUSED}-replicas": "sets that many replicas at once, past Tidegate"
            + ("; unpaused after its cooldownPeriod, it drops to zero at once" if sleeps else ""),
            f"{_PAUSED}-scale-in": "has no end, and keeps it from going to zero as long",
            f"{_PAUSED}-scale-out": "keeps it from waking, whatever waits for it",
        }.get(key)
        if message is not None:
            yield Remark((*_ANNOTATIONS, key), f"{message}: {_BETTER}", "warning", rule=PAUSED)


def cron_remarks(thing: DocumentValue) -> Iterator[Remark]:
    """A cron trigger beside ours."""
    for index, trigger in enumerate(thing.items("spec", "triggers")):
        if trigger.read("type") == "cron":
            message = (
                "holds its replicas beside Tidegate's, cold at the beginning and without Tidegate's knowing: the word "
                "schedules of its trigger says the same, with a pre-warm"
            )
            yield Remark(("spec", "triggers", index, "type"), message, "warning", rule=CRON_BESIDE)
