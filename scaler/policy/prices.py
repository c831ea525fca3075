"""Prices GPU-hours by model: the configured prices, else public list prices. Pure.

A price names a GPU model by words of its name: `A100 80GB` is any model with both words. Of several prices that match,
the one with most words wins. A price is of a whole GPU; `exporter.catalog.gpus` has the part of a MIG slice.

Worked example: `NVIDIA H100 80GB HBM3` of DCGM and `NVIDIA-H100-80GB-HBM3-SHARED` of a node's label both have the words
of `H100 80GB HBM3`. With `gpus` {"H100": 3.9} and `gpu_hour` 2.0, an H100 costs 3.9 and an L4 costs 2.0; without
`gpu_hour` the L4 has its public price, and a GPU that is not listed has none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import nan
from typing import NamedTuple

from exporter.model import Floats


class ListPrice(NamedTuple):
    """A public on-demand list price, in dollars per hour of one GPU and its part of the instance."""

    gpu: str
    hour: float
    source: str


# An instance with several GPUs is divided by their number. Discounts, reservations and spot prices are lower; some
# clouds ask half of it, others twice as much.
PUBLIC = (
    ListPrice("NVIDIA A10G", 1.006, "AWS g5.xlarge, us-east-1, 2026-06-17"),
    ListPrice("NVIDIA A100 SXM4 40GB", 2.74, "AWS p4d.24xlarge / 8, us-east-1, 2026-11-09"),
    ListPrice("NVIDIA A100 SXM4 80GB", 3.43, "AWS p4de.24xlarge / 8, us-east-1, 2026-11-09"),
    ListPrice("NVIDIA A100 80GB PCIe", 3.67, "Azure NC24ads_A100_v4, eastus, 2026-11-09"),
    ListPrice("NVIDIA H100 80GB HBM3", 6.88, "AWS p5.48xlarge / 8, us-east-1, 2026-11-09"),
    ListPrice("NVIDIA H100 NVL", 6.98, "Azure NC40ads_H100_v5, eastus, 2026-11-09"),
    ListPrice("NVIDIA H200", 10.44, "Google Cloud a3-ultragpu-8g / 8, us-central1, 2026-10-13"),
    ListPrice("NVIDIA B200", 6.69, "Lambda 8x B200 SXM6 / 8, all regions, 2026-09-20"),
    ListPrice("NVIDIA B300", 7.89, "RunPod pod B300, all regions, 2026-10-07"),
    ListPrice("NVIDIA L4", 0.80, "AWS g6.xlarge, us-west-2, SkyPilot's catalog v8 at e385a0d"),
    ListPrice("NVIDIA L40S", 2.62, "AWS g6e.12xlarge / 4, us-east-1, SkyPilot's catalog v8 at e385a0d"),
)
_PUBLIC = {price.gpu: price.hour for price in PUBLIC}


@dataclass(frozen=True, slots=True)
class PriceList:
    """The configured prices of a GPU-hour. gpu_hour: of a model that `gpus` does not name; None: public ones."""

    gpus: Mapping[str, float] = field(default_factory=dict)
    gpu_hour: float | None = None

    def hour(self, model: str | None) -> float:
        """The price of one whole GPU of this model for an hour; NaN if there is none."""
        found = _match(self.gpus, model)
        if found is None and self.gpu_hour is not None:
            return self.gpu_hour
        if found is None:
            found = _match(_PUBLIC, model)
        return nan if found is None else found


@lru_cache(maxsize=4096)
def name_parts(text: str) -> frozenset[str]:
    """The words of the name of a GPU model, or of the name that a price has; without the vendor."""
    return frozenset(re.findall(r"[a-z0-9]+", text.lower())) - {"nvidia"}


def _match(prices: Mapping[str, float], model: str | None) -> float | None:
    of = name_parts(model or "")
    fitting = [name for name in prices if name_parts(name) and name_parts(name) <= of]
    return prices[max(fitting, key=lambda name: (len(name_parts(name)), name))] if fitting else None


class ReplicaCost(NamedTuple):
    """The GPUs of one replica and its price, shape (rows,); NaN unknown.

    hour: the money for an hour of it with all its GPUs: whole ones at the price of their model, so a MIG slice costs
          its part. The wait and the warmth are weighed in one currency, and an H100 costs eight times as much as an L4:
          one price for both keeps the one warm too long and the other too short.
    """

    gpus: Floats
    hour: Floats
