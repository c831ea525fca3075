"""Sizes one queue in plain Python, one line per rule: the kernel of `scaler.policy.batch` must equal it."""

from __future__ import annotations

from math import ceil, exp, expm1, floor, isnan, nan, sqrt

from scaler.policy.batch import (
    ARRIVALS_MOVE_S,
    DEFAULTS,
    DUST,
    FEWEST,
    FIRST_ERROR,
    FREE_REVERSALS,
    LONGEST_WINDOW_S,
    MOST_DOUBLINGS,
    REVERSAL_S,
    REVERSALS_OF_S,
    SERVICE_MOVES_S,
    SHORT_JOB_S,
    SLOTS,
    SUSPECT,
)


class Rates:
    """The Kalman filter of the arrival rate and the service rate. `p`: its covariance matrix."""

    def __init__(self):
        self.arrivals, self.service, self.p = 0.0, nan, [[0.0, 0.0], [0.0, 0.0]]

    def begin(self, left, rise, seconds, busy):
        self.service, self.arrivals = left / busy, max(rise + left, 0.0) / seconds
        self.p = [[(0.5 * left / seconds) ** 2, 0.0], [0.0, self.service**2 * (1 / left + FIRST_ERROR**2)]]

    def move(self, since, flow):
        self.p[0][0] += flow**2 * min(since / ARRIVALS_MOVE_S, 1.0)
        self.p[1][1] += self.service**2 * min(since / SERVICE_MOVES_S, 1.0)

    def fit(self, h, value, variance):
        error = value - h[0] * self.arrivals - h[1] * self.service
        gain = [sum(row[k] * h[k] for k in (0, 1)) for row in self.p]
        spread = h[0] * gain[0] + h[1] * gain[1] + variance
        if not spread > 0.0:
            return False
        if error > SUSPECT * sqrt(spread) and h[0] > 0.0:
            self.p[0][0] += (error / h[0]) ** 2
            return False
        error = max(min(error, SUSPECT * sqrt(spread)), -SUSPECT * sqrt(spread))
        arrivals, service = self.arrivals + gain[0] / spread * error, self.service + gain[1] / spread * error
        self.p = [[self.p[j][k] - gain[j] * gain[k] / spread for k in (0, 1)] for j in (0, 1)]
        if arrivals < 0.0 < self.p[0][0]:
            service -= self.p[0][1] / self.p[0][0] * arrivals
        self.arrivals = max(arrivals, 0.0)
        self.service = min(max(service, 0.5 * self.service), 2.0 * self.service)
        self.p[0][0], self.p[1][1] = max(self.p[0][0], 0.0), max(self.p[1][1], 0.0)
        return True


class Window:
    def __init__(self):
        self.seconds = self.busy = self.rise = 0.0
        self.finished = nan


class Queue:
    """The estimates of one workload, by name."""

    def __init__(self, constants=DEFAULTS):
        self.constants, self.rates = constants, Rates()
        self.at = self.ready = self.finished = self.waiting = nan
        self.is_busy, self.span, self.window, self.since = False, [0.0, 0.0, 0.0], Window(), 0.0
        self.stream, self.at_a_time, self.starting, self.start_left = 0.0, 1.0, 0.0, 0.0
        self.need = self.size = self.lower_from = self.rose_at = self.fell_at = self.taken_at = nan
        self.lower, self.reversals, self.snapshots = 0.0, 0.0, [0.0] * SLOTS

    @property
    def service(self):
        return self.rates.service

    @property
    def times(self):
        return 2.0 ** min(max(self.reversals - FREE_REVERSALS, 0.0), MOST_DOUBLINGS)

    def update(self, within, waiting, running, finished, ready, wanted, pending, start, longest, now):
        if not within > 0.0 or isnan(waiting) or isnan(ready) or now == self.at:
            return
        dt = now - self.at if now > self.at else 2 * longest
        self.at = now
        coming = max((0.0 if isnan(wanted) else wanted) - ready, 0.0)
        settled = coming <= max(0.0 if isnan(pending) else pending, 0.0)
        self.follow(waiting, running, finished, ready, settled, within, dt, longest)
        self.snapshot(waiting, within, now)
        left = max(self.start_left - dt, 0.0)
        if coming > self.starting:
            left = (left * self.starting + start * (coming - self.starting)) / coming
        self.starting, self.start_left = coming, left
        c = self.constants
        hold = max(c.hold_starts * start, c.shortest_hold_s)
        if isnan(self.service):
            self.need = self.unlearned(waiting, running, ready, c.target * within - start, within, now)
        else:
            self.need = self.needed(waiting, running, ready, within, start, now)
            if isnan(running):
                hold = max(hold, self.at_a_time / self.service)
        self.hold(self.need, min(hold, c.longest_hold_s), dt, now)

    def follow(self, waiting, running, finished, ready, settled, within, dt, longest):
        ready_before, self.ready = self.ready, ready
        visible = not isnan(running)
        if waiting == 0.0 and not isnan(self.service):
            busy = min(running / self.at_a_time, ready) if visible else 0.0
            slow = 1.0 if visible else self.times
            self.stream += -expm1(-dt / (within * slow)) * (busy * self.service - self.stream)
        if dt > longest or isnan(self.waiting) or isnan(ready_before):
            self.window, self.span, self.is_busy = Window(), [0.0, 0.0, 0.0], False
            self.waiting, self.finished = waiting, finished
            self.snapshots = [min(jobs, waiting) for jobs in self.snapshots]
            return
        fresh = self.at_a_time * max(ready - ready_before, 0.0)
        self.span = [a + b for a, b in zip(self.span, (dt, min(ready_before, ready) * dt, fresh), strict=True)]
        self.since += dt
        ended, self.finished = finished - self.finished, finished
        if self.is_busy:
            before = 0.0 if isnan(self.window.finished) else self.window.finished
            self.window.finished = before + ended if ended >= 0.0 else nan
        left = 0.0
        if waiting != self.waiting or self.span[0] >= longest:
            left = self.end_span(waiting, ready, longest, settled)
        self.snapshots = [min(max(jobs - left, 0.0), waiting) for jobs in self.snapshots]
        if waiting > 0.0 and ready > 0.0 and settled and visible:
            self.at_a_time += -expm1(-dt / ARRIVALS_MOVE_S) * (running / ready - self.at_a_time)
            self.at_a_time = max(self.at_a_time, 1.0)

    def end_span(self, waiting, ready, longest, settled):
        before, (seconds, busy, taken) = self.waiting, self.span
        self.waiting, self.span = waiting, [0.0, 0.0, 0.0]
        if self.is_busy:
            self.window.seconds += seconds
            self.window.busy += busy
            self.window.rise += waiting - before + taken
            self.measure(settled)
        if isnan(self.service):
            lasts = waiting >= ready or seconds >= longest
            left = max(before - waiting, 0.0)
        else:
            lasts = waiting >= self.service * ready * longest
            left = min(self.service * busy + taken, before) if before > 0.0 else 0.0
        self.is_busy = waiting > 0.0 and lasts
        return left

    def measure(self, settled):
        window, rates = self.window, self.rates
        counts = not isnan(window.finished)
        if isnan(rates.service):
            left = window.finished if counts else -window.rise
            if left >= FEWEST and window.busy > 0.0 and settled:
                rates.begin(left, window.rise, window.seconds, window.busy)
                self.window = Window()
            elif not counts and window.rise > 0.0:
                self.window = Window()
            return
        served = rates.service * window.busy
        if served < FEWEST and window.seconds < LONGEST_WINDOW_S:
            return
        came = rates.arrivals * window.seconds
        rates.move(self.since, rates.arrivals + served / window.seconds)
        if counts:
            fits = [((0.0, window.busy), window.finished, served)]
            fits.append(((window.seconds, 0.0), max(window.rise + window.finished, 0.0), max(came, 1.0)))
        else:
            fits = [((window.seconds, -window.busy), window.rise, came + served)]
        for fit in fits:
            if rates.fit(*fit):
                self.stream = rates.arrivals
        self.since, self.window = 0.0, Window()

    def snapshot(self, waiting, within, now):
        slot_s = within / SLOTS
        many = SLOTS if isnan(self.taken_at) or now < self.taken_at else int(min((now - self.taken_at) / slot_s, SLOTS))
        if many:
            self.snapshots = ([waiting] + [0.0] * (many - 1) + self.snapshots)[:SLOTS]
            self.taken_at = now if many == SLOTS else self.taken_at + many * slot_s

    def groups(self, waiting, within, now):
        """Pairs of jobs, the first ones of the queue, and the seconds since all of them had arrived."""
        yield waiting, 0.0
        for slot, jobs in enumerate(self.snapshots):
            if jobs > 0.0:
                yield jobs, now - self.taken_at + slot * within / SLOTS

    def needed(self, waiting, running, ready, within, start, now):
        need = floor(self.stream / self.service + DUST)
        if waiting > 0.0:
            for jobs, age in self.groups(waiting, within, now):
                need = max(need, self.by_deadline(jobs, self.constants.target * within - age, ready, start))
        if self.at_a_time / self.service > SHORT_JOB_S and not isnan(running):
            need = max(need, min(running / self.at_a_time, ready))
        return need

    def by_deadline(self, jobs, left, ready, start):
        left = left if left > start else 2.0 * start
        by_starting = self.service * max(left - self.start_left, 0.0)
        there = self.service * ready * left + self.starting * max(by_starting, self.at_a_time)
        noise = self.constants.noise
        there = max(there - noise * sqrt(there), 0.0)
        if jobs > there:
            return ready + self.starting + (jobs - there) / max(self.at_a_time, self.service * (left - start))
        root = (noise + sqrt(noise**2 + 4.0 * jobs)) / 2
        return min(root**2 / (self.service * left), ready + self.starting)

    def unlearned(self, waiting, running, ready, left, within, now):
        if not waiting > 0.0:
            return 0.0 if isnan(running) else min(running, ready)
        if any(age >= 0.5 * left for _, age in self.groups(waiting, within, now)):
            return ready + waiting
        return max(ready + self.starting, 0.5 * (ready + waiting))

    def hold(self, need, hold, dt, now):
        self.reversals *= exp(-dt / REVERSALS_OF_S)
        times, before = self.times, self.size
        if not need < self.size or dt >= hold * times:
            self.size, self.lower_from = need, nan
            if not isnan(before) and ceil(need) > ceil(before):
                self.reversals += now - self.fell_at <= REVERSAL_S
                self.rose_at, self.fell_at = now, nan
        elif isnan(self.lower_from) or now < self.lower_from:
            self.lower_from, self.lower = now, need
        else:
            self.lower = max(self.lower, need)
            if now - self.lower_from >= hold * times:
                self.size, self.lower_from = self.lower, nan
                if ceil(self.lower) < ceil(before):
                    self.reversals += now - self.rose_at <= REVERSAL_S
                    self.fell_at, self.rose_at = now, nan
