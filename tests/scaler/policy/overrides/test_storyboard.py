"""Days of overrides on a workload without requests: it moves only by an override."""

import numpy as np

from scaler.config.scalars import read_duration
from scaler.policy.columns import Constraints, Memory, Readings, Signal, Spec, Specs
from scaler.policy.kernel import step
from scaler.policy.overrides import Overrides, WorkloadOverrides, moment, read_brake, read_schedules

OFFICE = "0 8 * * 1-5 for 10h in Europe/Berlin floor 2"
COLD_START_S = 360.0
MINUTE = 60.0


def idle(replicas):
    """Fresh readings without requests."""
    readings = Readings.unknown(1)
    quiet = {
        "waiting": 0, "running": 0, "held": 0, "pods_listed": replicas, "pods_fresh": replicas, "gateway_fresh": True,
        "waker_fresh": True, "wanted": replicas, "ready": replicas, "existing": replicas, "measured_at": 1.0,
    }  # fmt: skip
    for name, value in quiet.items():
        getattr(readings, name)[0] = value
    readings.signals[0, Signal.WORK] = 0.0
    return readings


def played(overrides, begin, end):
    """The times and replicas of each change, decided every other minute; the cluster follows at once."""
    specs, memory, replicas = Specs.stack([Spec(0, 8, ((Signal.WORK, 16.0),), gateway=True)]), Memory.blank(1), 0
    story = []
    for now in np.arange(moment(begin), moment(end), 2 * MINUTE).tolist():
        constraints = Constraints.plain(specs)._replace(**overrides.at(now, np.array([COLD_START_S]))._asdict())
        verdicts, memory = step(specs, idle(replicas), constraints, memory, now)
        replicas = int(verdicts.replicas[0])
        if not story or story[-1][1] != replicas:
            story.append((now, replicas))
    return story


def at(*story):
    return [(moment(when), replicas) for when, replicas in story]


def test_office_hours_of_a_week_and_a_brake_over_a_night():
    brake = read_brake("never_down until 2026-03-27T02:00 Europe/Berlin because of on-call")
    overrides = Overrides([WorkloadOverrides((brake,), read_schedules(OFFICE, read_duration))])
    assert played(overrides, "2026-03-25T00:00+01:00", "2026-03-28T00:00+01:00") == at(
        ("2026-03-25T00:00+01:00", 0),
        ("2026-03-25T07:54+01:00", 2),  # the cold start of six minutes before eight; at six in the evening, never down
        ("2026-03-27T02:00+01:00", 0),  # the brake ends, and it has been idle for days
        ("2026-03-27T07:54+01:00", 2),
        ("2026-03-27T18:00+01:00", 0),
    )


def test_frozen_sleeping_workload_misses_the_opening_and_the_next_week_follows_local_time():
    """Summer time begins in the night to Sunday, 29 March."""
    brake = read_brake("freeze until 2026-03-30T09:00 Europe/Berlin because of the move")
    overrides = Overrides([WorkloadOverrides((brake,), read_schedules(OFFICE, read_duration))])
    assert played(overrides, "2026-03-28T00:00+01:00", "2026-04-01T00:00+02:00") == at(
        ("2026-03-28T00:00+01:00", 0),
        ("2026-03-30T09:00+02:00", 2),
        ("2026-03-30T18:00+02:00", 0),
        ("2026-03-31T07:54+02:00", 2),
        ("2026-03-31T18:00+02:00", 0),
    )
