"""What a group needs wakes its members, and a schedule's ceiling wins against it."""

import numpy as np

from scaler.policy.columns import Constraints, Memory, Readings, Signal, Spec, Specs
from scaler.policy.groups import Groups, Membership, decide_groups


def specs_from(minimum):
    return Specs.stack([Spec(minimum, maximum=20, targets=((Signal.WORK, 16.0),), pods=False, gateway=True)] * 2)


def held_by_the_first(requests):
    """Readings of two workloads, of which the gateway of the first holds requests."""
    nothing = Readings.unknown(2)
    signals = nothing.signals.copy()
    signals[:, Signal.WORK] = [requests, 0.0]
    return nothing._replace(
        signals=signals,
        held=np.array([requests, 0.0]),
        gateway_fresh=np.ones(2, dtype=np.bool_),
        waker_fresh=np.ones(2, dtype=np.bool_),
    )


def test_member_without_work_is_up_with_its_mate_and_has_the_replicas_that_it_wants_alone():
    groups = Groups.stack([Membership("ai", "pd", "prefill"), Membership("ai", "pd", "decode")])
    specs = specs_from(0)
    asleep = Memory.blank(2)._replace(replicas=np.zeros(2), idle_since=np.zeros(2))
    given = (groups, specs, held_by_the_first(96.0), Constraints.plain(specs), asleep, 1e6)
    verdicts, _, needed, *_ = decide_groups(*given)
    assert (verdicts.replicas.tolist(), needed.tolist()) == ([6.0, 1.0], [0.0, 1.0])


def test_ceiling_wins_against_a_bound_of_the_group():
    members = [Membership("ai", "pd", "prefill"), Membership("ai", "pd", "decode", to="prefill", least=1.0)]
    specs, readings = specs_from(1), held_by_the_first(96.0)
    constraints = Constraints.plain(specs)
    groups = Groups.stack(members)
    free, _, needed, *_ = decide_groups(groups, specs, readings, constraints, Memory.blank(2), 1000.0)
    assert (free.replicas.tolist(), needed.tolist()) == ([6.0, 6.0], [0.0, 6.0])
    low = constraints._replace(ceiling=np.array([np.inf, 2.0]))
    held, _, needed, *_ = decide_groups(groups, specs, readings, low, Memory.blank(2), 1000.0)
    assert (held.replicas.tolist(), needed.tolist()) == ([6.0, 2.0], [0.0, 2.0])
