"""MIG profiles: how much of a GPU an instance is, and how high its engine activity may get.

A profile says how many of a GPU's compute slices an instance has: `3g.40gb` has 3. It does not say how they are cut
into compute instances, and no page does. DCGM measures activity against the whole instance, so one busy compute
instance of one slice reads 1/N on an instance of N slices: 1.0, 0.5 and 0.33 at most were measured on 1g, 2g and 3g
(NVIDIA/DCGM#138). Such a value may be all that a pod can reach or a third of it. So it is never divided here: the
ceiling stands beside it, and it is a ceiling that the instance *may* have.

Worked example: of `3g.40gb` on an H100 the slices are 3, the ceiling 0.333 and the share of the GPU 3/7.
"""

from __future__ import annotations

import re
from functools import lru_cache

from exporter.model import Gpu

# "1g.5gb", "1g.10gb+me", "2g.24gb-me", "1c.3g.20gb" (a compute instance of it), "MIG 1g.5gb", "mig-1g.5gb": the
# digits before the g are the slices (docs.nvidia.com MIG user guide, "Supported MIG Profiles").
_PROFILE = re.compile(r"(?:^|[ .-])([1-9])g\.")

# Compute slices of a whole GPU: 7 on A100, H100, H200, B200 and their kin; 4 where the largest profile is 4g.
SLICES = 7
FOUR_SLICES = ("A30", "RTX PRO 6000")


@lru_cache(maxsize=256)
def slices(profile: str | None) -> int | None:
    """Compute slices of a MIG profile; None where it does not say."""
    found = _PROFILE.search(profile or "")
    return int(found[1]) if found else None


def ceiling(gpu: Gpu) -> float | None:
    """The engine activity, 0..1, at which a single busy compute instance of an instance tops; None of a whole GPU."""
    count = slices(gpu.profile) if gpu.instance is not None else None
    return None if count is None else 1.0 / count


def share(gpu: Gpu) -> float:
    """How much of a whole GPU it is, 0..1: what its activity weighs in a mean over unequal parts.

    An instance without a profile counts as one slice: the smallest there is.
    """
    if gpu.instance is None:
        return 1.0
    whole = 4 if any(name in (gpu.model or "") for name in FOUR_SLICES) else SLICES
    return min(1.0, (slices(gpu.profile) or 1) / whole)
