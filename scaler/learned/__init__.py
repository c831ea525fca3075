"""What a workload's past says of its future: how long its starts take, how long it rests, what being warm is worth.

Everything here is an array over all workloads, survives as columns (`columns()`, `take()`), and is told the time.
"""

from .keepwarm import Rules, Saving
from .learned import Learned, Rates
from .starts import PHASES, ColdStarts, Starts

__all__ = ["PHASES", "ColdStarts", "Learned", "Rates", "Rules", "Saving", "Starts"]
