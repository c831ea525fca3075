"""What a person is told of a workload's GPUs: by what their activity is known, and what is missing of it.

It knows counts and words and decides nothing. Engine activity sizes and proves idleness; utilisation stands in where
there is none, for idleness alone; where there is neither, requests decide alone.

Worked example: two GPUs of its own, of which one says utilisation only: `activity` is "mixed", and a note says so.
"""

from __future__ import annotations

from .totals import Totals


def activity(totals: Totals, place: int) -> str | None:
    """By what the activity of its GPUs is known: "engine", "utilisation", "process" (utilisation by process, on GPUs
    that others share), "mixed", "none"; None where it has no GPU that is its own or measured for it.
    """
    gpus = totals.gpus
    alive = gpus.shown[place] - gpus.lost[place]
    engine = alive - gpus.utilised[place] - gpus.silent[place]
    if not gpus.shown[place] + gpus.parts[place] > 0.0:
        return None
    ways = {"engine": engine, "utilisation": gpus.utilised[place], "none": gpus.silent[place]}
    ways["process"] = gpus.parts[place]
    found = [way for way, count in ways.items() if count > 0.0]
    return found[0] if len(found) == 1 else "mixed" if found else "none"


def notes(totals: Totals, place: int, target: float | None) -> list[str]:
    """What somebody who looks at its GPUs would ask next. `target`: engine activity it is sized by, if it is."""
    gpus, seen = totals.gpus, totals.seen
    shown, held = gpus.shown[place], totals.gpus_held[place]
    found = []
    if seen.gpus_stale[place]:
        found.append("its GPUs are not seen at present, so idleness cannot be proven")
    if seen.gpus_blind[place]:
        found.append(
            "a GPU of its own no longer says its activity (profiling paused, or an exporter in trouble), so idleness "
            "cannot be proven"
        )
    elif gpus.silent[place] > 0.0:
        found.append(
            f"{gpus.silent[place]:.0f} of its {shown:.0f} GPUs say no activity: idleness is told by requests alone"
        )
    if gpus.utilised[place] > 0.0:
        found.append(
            f"{gpus.utilised[place]:.0f} of its {shown:.0f} GPUs say no engine activity: utilisation stands in for it "
            "in the idle verdict, and sizes nothing"
        )
    if gpus.parts[place] > 0.0:
        found.append(
            f"{gpus.parts[place]:.0f} of its pods are on GPUs that others share and that are measured by process: that "
            "utilisation counts in the idle verdict, and sizes nothing"
        )
    if gpus.lost[place] > 0.0:
        found.append(
            f"{gpus.lost[place]:.0f} of its {shown:.0f} GPUs fell silent after a fatal Xid error: no capacity, and "
            "left out of the mean (tidegate_gpu_lost says which)"
        )
    if target is not None and gpus.ceiling[place] <= target:
        found.append(
            f"its engine activity may top at {gpus.ceiling[place]:.2f}, which is not above the target of {target:g}: "
            "a single busy compute instance fills no MIG instance of several slices"
        )
    if 0 < shown < held:
        found.append(
            f"its pods hold {held:.0f} GPUs, and pages show {shown:.0f} of them as its own: the others are shared, "
            "or not labelled"
        )
    return found
