"""Sizes one workload in plain Python, one line per rule: the kernel of `scaler.policy.sizing` must equal it."""

from __future__ import annotations

from math import ceil, exp, expm1, isnan, nan, sqrt

from scaler.policy.capacity import (
    ARRIVAL_S,
    CONTEXT_OF_OUTPUT,
    CROWDED,
    DEFAULTS,
    FACTOR_PRIOR,
    FASTEST_S,
    FEWEST_GAPS,
    FORGOTTEN_PER_S,
    FULL_PREFILL,
    KV_SHARE,
    LEAST_ROOM,
    MEAN_OF,
    OUTPUT_TOKENS,
    PEAK_COUNT,
    PER_CONTEXT_TOKEN,
    PER_PROMPT_TOKEN,
    PER_SEQUENCE,
    PRIOR_REQUESTS,
    PROMPT_TOKENS,
    SLOWEST,
    STEP_PRIOR,
    STEP_S,
    TARGET,
    WINDOW_S,
)
from scaler.policy.sizing import (
    ABSENT_STARTS,
    BUDGET,
    BUDGET_GAIN,
    DAY_S,
    DUST,
    FEWEST_REQUESTS,
    LATE_ITL,
    LATE_S,
    LEAST_WORK,
    MEMORY_S,
    MOST_HOLD,
    REVERSAL_BAND,
    REVERSALS_S,
    REVERSED_S,
    SLOW_S,
    USUAL_START_S,
)


def counted(value):
    """A rate as an amount: 0 if it is unknown, or below 0 between two responses."""
    return 0.0 if isnan(value) else max(value, 0.0)


class Mean:
    """A mean over about the last MEAN_OF requests."""

    def __init__(self, prior):
        self.total, self.count = PRIOR_REQUESTS * prior, PRIOR_REQUESTS

    def add(self, amount, number):
        self.total, self.count = self.total + amount, self.count + number
        if self.count > MEAN_OF:
            self.total, self.count = self.total * (MEAN_OF / self.count), MEAN_OF

    @property
    def value(self):
        return self.total / self.count


class Peaks:
    """The largest size of the hold, by parts of it. Keeps (index of the part, size), newest part last."""

    def __init__(self):
        self.began, self.sizes = nan, []

    def largest(self, size, hold, now):
        part = hold / (PEAK_COUNT - 1)
        if isnan(self.began) or self.began > now:
            self.began, self.sizes = now, []
        elif now - self.began >= part * (1.0 - DUST):
            passed = int((now - self.began) / part + DUST)
            self.sizes = [(age + passed, kept) for age, kept in self.sizes if age + passed < PEAK_COUNT]
            self.began = now if passed >= PEAK_COUNT else self.began + passed * part
        self.sizes.append((0, size))
        return max(kept for _, kept in self.sizes)


class Reversals:
    """Rises of whole sizes within REVERSED_S of a fall, decayed."""

    def __init__(self):
        self.count, self.whole, self.fell_at = 0.0, 0, nan

    def hold(self, start, constants):
        usual = min(max(constants.hold_starts * start, constants.shortest_hold_s), constants.longest_hold_s)
        often = self.count / (constants.reversals_a_day * REVERSALS_S / DAY_S)
        return min(usual * min(max(often, 1.0), MOST_HOLD), constants.longest_hold_s)

    def follow(self, size, dt, now):
        self.count *= exp(-dt / REVERSALS_S)
        fallen = ceil(size + REVERSAL_BAND)
        if ceil(size) > self.whole:
            if 0.0 <= now - self.fell_at <= REVERSED_S:
                self.count += 1.0
            self.whole, self.fell_at = ceil(size), nan
        elif fallen < self.whole:
            self.whole, self.fell_at = fallen, now


class Budget:
    """How far misses beyond what cold starts leave of the error budget stretch the headroom, 0 to 1."""

    def __init__(self, constants):
        self.constants = constants
        self.stretch, self.late_at, self.absent_at, self.cold = 0.0, nan, nan, nan

    def follow(self, misses, arrived, recent, late, ready, start, dt, now):
        self.cold *= exp(-dt / MEMORY_S)
        if ready <= 0.0 and isnan(self.cold):
            self.cold = 0.0
        if late:
            self.late_at = now
        if ready <= 0.0 or isnan(self.absent_at):
            self.absent_at = now
        if isnan(misses):
            return
        is_cold = now - self.absent_at <= ABSENT_STARTS * start
        if is_cold:
            self.cold += misses
        if not now - self.late_at <= LATE_S or is_cold:
            misses = 0.0
        recent = max(recent, FEWEST_REQUESTS)
        budget = max(BUDGET - counted(self.cold) / recent, self.constants.least_budget)
        self.stretch += BUDGET_GAIN * (misses - budget * arrived) / recent
        self.stretch = min(max(self.stretch, 0.0), 1.0)


class Bursts:
    """The queue that would be there without the guard, and the most work of the bursts."""

    def __init__(self, constants):
        self.constants = constants
        self.queue, self.most, self.at = 0.0, 0.0, nan
        self.spell_s = self.spell_late = self.spell_peak = 0.0

    def guard(self, size, work, raw, arrived, recent, ready, ttft, start, dt, now):
        replicas = min(ceil(size), counted(ready))
        if replicas > 0 or ready == 0:
            self.queue = max(0.0, self.queue + (raw - replicas) * dt)
            if self.queue > 0.0:
                if raw > replicas:
                    self.spell_s = max(self.spell_s + dt, 0.0 if ready else start)
                if self.queue > ttft * replicas:
                    self.spell_late += arrived
                self.spell_peak = max(self.spell_peak, work)
            else:
                late = self.spell_late > self.constants.burst_share * max(recent, FEWEST_REQUESTS)
                if late and self.spell_s < start:
                    self.most = max(self.spell_peak, self.most if 0.0 <= now - self.at < MEMORY_S else 0.0)
                    self.at = now
                self.spell_s = self.spell_late = self.spell_peak = 0.0
        remembered = 0.0 <= now - self.at < MEMORY_S
        return max(size, self.constants.burst_margin * self.most) if remembered else size


class Sizing:
    """The estimates of one workload, by name."""

    def __init__(self, constants=DEFAULTS):
        self.constants = constants
        self.at, self.work, self.size = nan, nan, nan
        self.prompt, self.output = Mean(PROMPT_TOKENS), Mean(OUTPUT_TOKENS)
        self.cached = Mean(0.0)
        self.kv = KV_SHARE
        self.step_sum, self.step_weight = STEP_PRIOR * STEP_S, STEP_PRIOR
        self.factor_sum = self.factor_weight = FACTOR_PRIOR
        self.gaps = self.gap_seconds = self.prompt_read = self.replica_seconds = 0.0
        self.prefill = self.decode = 0.0
        self.slow = self.slower = self.unread = self.requests = 0.0
        self.peaks, self.budget, self.bursts = Peaks(), Budget(constants), Bursts(constants)
        self.reversals = Reversals()

    def update(self, rates, waiting, running, kv_used, ready, ttft, itl, start, misses, longest, now):
        """rates: in the order of WorkRate."""
        arrived, firsts, finished, read, generated, computed, gaps, gap_seconds = rates
        if any(isnan(each) for each in (itl, arrived, firsts, finished, read, generated, computed)):
            return
        dt, self.at = now - self.at, now
        if not dt > 0.0:
            return
        raw_ready = ready
        learned_s, ready, waiting, running = min(dt, longest), counted(ready), counted(waiting), counted(running)
        self.prompt.add(counted(read) * learned_s, counted(firsts) * learned_s)
        self.cached.add(max(counted(read) - counted(computed), 0.0) * learned_s, counted(firsts) * learned_s)
        self.output.add(counted(generated) * learned_s, counted(finished) * learned_s)
        if running >= 1.0 and counted(kv_used) > 0.0 and ready > 0.0:
            self.kv += min(0.01 * learned_s, 1.0) * (kv_used * ready / running - self.kv)
        unread = self.unread + (counted(arrived) - counted(firsts)) * learned_s
        self.unread = min(max(unread, waiting), waiting + running)
        self.learn_capacity(counted(gaps), counted(gap_seconds), counted(computed), self.unread, ready, itl, learned_s)
        self.work = self.arriving(arrived, counted(firsts), counted(computed), itl, dt)
        constants, request_s = self.constants, self.request_s(itl)
        raw, arrived = arrived * request_s, arrived * learned_s
        self.count_arrivals(arrived, raw, dt)
        backlog = self.unread * request_s
        late = backlog > constants.backlog_of_ttft * ttft * ready or self.gap_seconds > LATE_ITL * itl * self.gaps
        self.budget.follow(misses, arrived, self.requests, late, ready, start, dt, now)
        peak_s = min(max(itl * self.output.value, constants.shortest_peak_s), ARRIVAL_S)
        stretch = self.budget.stretch
        self.size_arrivals(
            arrived, raw, request_s, backlog, peak_s, stretch, raw_ready, ttft, start, dt, learned_s, now
        )

    def count_arrivals(self, arrived, raw, dt):
        """arrived: requests. raw: replicas of work that they are."""
        self.slow += (1.0 - exp(-dt / SLOW_S)) * (raw - self.slow)
        self.slower += (1.0 - exp(-dt / SLOW_S)) * (self.slow - self.slower)
        self.requests = max(exp(-dt / MEMORY_S) * self.requests + arrived, 0.0)

    def size_arrivals(self, arrived, raw, request_s, backlog, peak_s, stretch, ready, ttft, start, dt, learned_s, now):
        """backlog: replica-seconds that wait. stretch: of the headroom, 0 to 1. ready: replicas, NaN unknown."""
        constants = self.constants
        spread = sqrt(self.work * request_s / ARRIVAL_S)
        level = self.slow + constants.lead * (self.slow - self.slower)
        lasting = max(min(self.work, level), self.work - constants.noise * spread, 0.0)
        spread = sqrt(self.work * request_s / peak_s)
        headroom = sqrt((constants.headroom * spread) ** 2 + constants.drift**2 * lasting)
        headroom *= (start / USUAL_START_S) ** constants.headroom_power
        size = lasting + headroom * (1.0 + constants.stretch * stretch)
        size = self.rounded_down(size, stretch)
        size = self.with_backlog(size, backlog, ready, ttft, start)
        hold = self.reversals.hold(start, constants)
        if ready == 0.0 and arrived <= 0.0 and backlog <= 0.0:
            self.peaks = Peaks()
        size = self.peaks.largest(size, hold, now)
        self.reversals.follow(size, dt, now)
        self.size = self.bursts.guard(size, self.work, raw, arrived, self.requests, ready, ttft, start, learned_s, now)

    def learn_capacity(self, gaps, gap_seconds, computed, waiting, ready, itl, dt):
        kept = exp(-dt / WINDOW_S)
        self.gaps = kept * self.gaps + gaps * dt
        self.gap_seconds = kept * self.gap_seconds + gap_seconds * dt
        self.prompt_read = kept * self.prompt_read + computed * dt
        self.replica_seconds = kept * self.replica_seconds + ready * dt
        if ready <= 0.0 or gaps < FEWEST_GAPS:
            return
        measured = self.gap_seconds / self.gaps
        if waiting > CROWDED * ready or not FASTEST_S <= measured <= SLOWEST * itl:
            return
        # Sequences in a step, seen by a token; and the share of replicas that make a step at all, as Poisson has it.
        sequences = self.gap_seconds / self.replica_seconds
        working = sequences / -expm1(-sequences)
        steps = max(self.gaps / max(working, 1.0), 1.0)
        content = (1.0 + sequences) * self.token_content + PER_PROMPT_TOKEN * self.prompt_read / steps
        weight, forgotten = min(1.0, gaps / 40.0) * dt / 5.0, exp(-FORGOTTEN_PER_S * dt)
        sharp = weight / (self.constants.sharpest + content) ** 2
        self.step_sum = forgotten * self.step_sum + sharp * measured / (1.0 + content * self.factor)
        self.step_weight = forgotten * self.step_weight + sharp
        more = min(max(measured / self.step - 1.0, -0.5), 5.0 * content)
        prior = (1.0 - forgotten) * FACTOR_PRIOR
        self.factor_sum = forgotten * self.factor_sum + weight * content * more + prior
        self.factor_weight = forgotten * self.factor_weight + weight * content**2 + prior

    @property
    def step(self):
        return self.step_sum / self.step_weight

    @property
    def factor(self):
        fitted = self.factor_sum / self.factor_weight
        return min(max(fitted, self.constants.lowest_factor), self.constants.highest_factor)

    @property
    def token_content(self):
        """What one sequence adds to a step, as a share of an empty step."""
        return PER_SEQUENCE + PER_CONTEXT_TOKEN * (self.prompt.value + CONTEXT_OF_OUTPUT * self.output.value)

    @property
    def computed_tokens(self):
        return max(self.prompt.value - self.cached.value, 0.0)

    def room(self, itl):
        return max(LEAST_ROOM, 1.0 - self.step / (TARGET * itl))

    def request_s(self, itl):
        """Replica-seconds of one request."""
        prefill = self.computed_tokens * PER_PROMPT_TOKEN * self.step * self.factor
        decode = self.output.value * self.token_content * self.step * self.factor
        return max(prefill / FULL_PREFILL, (prefill + decode) / self.room(itl))

    def arriving(self, arrived, firsts, computed, itl, dt):
        room, price = self.room(itl), self.step * self.factor
        prefill = (computed + (arrived - firsts) * self.computed_tokens) * PER_PROMPT_TOKEN * price
        output = arrived * self.output.value
        in_caches = output * TARGET * itl * self.kv / self.constants.full_kv
        decode = max(output * self.token_content * price, room * in_caches - prefill)
        residence = min(max(0.5 * itl * self.output.value, ARRIVAL_S), self.constants.longest_residence_s)
        self.prefill += (1.0 - exp(-dt / ARRIVAL_S)) * (prefill - self.prefill)
        self.decode += (1.0 - exp(-dt / residence)) * (decode - self.decode)
        work = max(self.prefill / FULL_PREFILL, (self.prefill + self.decode) / room)
        return work if work > LEAST_WORK else 0.0

    def rounded_down(self, size, stretch):
        left = max(0.0, 1.0 - stretch / self.constants.rounded_stretch)
        return max(size - self.constants.rounded_down * left, min(size, 1.0))

    def with_backlog(self, size, backlog, ready, ttft, start):
        if not backlog > self.constants.backlog_of_ttft * ttft * ready:
            return size
        backlog += max(self.work - ready, 0.0) * start
        most = self.constants.backlog_times * max(self.work, 1.0) + self.constants.backlog_more
        return max(size, min(self.work + backlog / start, most))


def whole(size):
    """Replicas of a size."""
    return ceil(size - 1e-9)
