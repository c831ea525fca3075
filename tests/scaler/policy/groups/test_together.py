"""A schedule's ceiling wins against the floor of the group."""

import numpy as np

from scaler.policy.columns import Constraints, Memory, Readings, Signal, Spec, Specs
from scaler.policy.groups import Groups, Membership, decide_groups


def test_ceiling_wins_against_a_bound_of_the_group():
    members = [Membership("ai", "pd", "prefill"), Membership("ai", "pd", "decode", to="prefill", least=1.0)]
    specs = Specs.stack([Spec(minimum=1, maximum=20, targets=((Signal.WORK, 16.0),), pods=False, gateway=True)] * 2)
    nothing = Readings.unknown(2)
    signals = nothing.signals.copy()
    signals[:, Signal.WORK] = [96.0, 0.0]
    readings = nothing._replace(
        signals=signals,
        held=np.array([96.0, 0.0]),
        gateway_fresh=np.ones(2, dtype=np.bool_),
        waker_fresh=np.ones(2, dtype=np.bool_),
    )
    constraints = Constraints.plain(specs)
    groups = Groups.stack(members)
    free, _, needed, *_ = decide_groups(groups, specs, readings, constraints, Memory.blank(2), 1000.0)
    assert (free.replicas.tolist(), needed.tolist()) == ([6.0, 6.0], [0.0, 6.0])
    low = constraints._replace(ceiling=np.array([np.inf, 2.0]))
    held, _, needed, *_ = decide_groups(groups, specs, readings, low, Memory.blank(2), 1000.0)
    assert (held.replicas.tolist(), needed.tolist()) == ([6.0, 2.0], [0.0, 2.0])
