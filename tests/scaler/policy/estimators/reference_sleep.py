"""The plan of sleep by trying every pair of times on the recorded pauses themselves: what the kernel must equal."""

from math import inf, isinf, nan

from scaler.policy.sleep_tiers import YOUNG


def cost_of(pause, after, zero, costs):
    """The cost of one pause that sleeps at `after` and is at zero at `zero`. One of just that length is longer."""
    idle, asleep, wake, start = costs
    after = min(after, zero)
    ready_s, asleep_s = min(pause, after), min(pause, zero) - min(pause, after)
    end = start if pause >= zero else wake if pause >= after else 0.0
    return ready_s * idle + asleep_s * asleep + end


def mean_cost(pauses, after, zero, costs):
    return sum(cost_of(pause, after, zero, costs) for pause in pauses) / len(pauses)


def plan(pauses, edges, costs, bounds):
    """(after, cost ready, cost asleep, cost without sleep); `after` is NaN if sleep does not pay."""
    earliest, zero_from, zero_until = bounds
    idle, asleep, wake, start = costs
    never = isinf(zero_until)
    if sum(pause >= earliest for pause in pauses) < YOUNG:
        envelope = max(wake / (idle - asleep), earliest) if idle > asleep else inf
        zero = inf if never else min(max((start - wake) / asleep, zero_from), zero_until)
        return (envelope if envelope < zero else nan, nan, nan, nan)
    sleeps = sorted({max(edge, earliest) for edge in edges})
    zeros = [inf] if never else sorted({min(max(edge, zero_from), zero_until) for edge in edges})
    pairs = [(after, zero) for after in sleeps for zero in zeros if after < zero]
    found = {pair: mean_cost(pauses, *pair, costs) for pair in pairs}
    plain = min(mean_cost(pauses, inf, zero, costs) for zero in zeros)
    best = min(found.values(), default=inf)
    after = max((pair[0] for pair in pairs if found[pair] <= best), default=nan)
    ready, only_asleep = mean_cost(pauses, inf, inf, costs), min(mean_cost(pauses, a, inf, costs) for a in sleeps)
    return (after if best < plain and idle > asleep else nan, ready, only_asleep, plain)
