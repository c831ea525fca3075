"""What to tell a HorizontalPodAutoscaler so that a step up is taken: rounded outward past the band it ignores.

The HPA drops a change within its tolerance, 10 % unless it is told otherwise: at 10 replicas it takes a wish for 11 to
be 10. The next number that it does not drop, 12, is a replica too many; 10 would be one too few. Down-steps are left as
they are: one that is dropped costs a replica, and nobody waits for it. Pure, over all workloads at once.

Worked example: 11 wanted at 10 replicas is told as 12 with a tolerance of 0.1, as 11 with 0.09, and as 11 where it is
not known how many there are.

    past_band(np.array([11.0]), np.array([10.0]), np.array([0.1]))  # [12.0]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def past_band(wanted: Floats, current: Floats, tolerance: Floats, most: Floats | float = np.inf) -> Floats:
    """The least whole number of replicas that is at least `wanted` and that the HPA does not take for `current`.

    wanted:    whole replicas; NaN is unknown and stays so.
    current:   replicas the cluster has been told to run; NaN is unknown, and nothing is rounded then.
    tolerance: the HPA's for going up, a ratio.
    most:      replicas that a person allows at most: nothing is rounded past that, and the step waits. Where a floor
               asks for as many it is inf: too many is the lesser harm.

    The test is the HPA's own, float for float (`replica_calculator.go` Tolerances.isWithin, Kubernetes 1.33): dropped
    is a ratio of at most 1.0 + tolerance. Before 1.33 it was |ratio - 1| <= tolerance, which drops nothing more. Values
    travel as whole milli-units, of which both sides of the ratio have as many.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        edge = 1.0 + tolerance
        dropped = (wanted > current) & (wanted / current <= edge)
        past = np.floor(current * edge)
        # The product is rounded, and so is the quotient: the edge itself may be dropped, and the number after it.
        past += past / current <= edge
        past += past / current <= edge
    return np.where(dropped & (past <= most), past, wanted)
