"""Tests a ScaledJob with KEDA's arithmetic on its decisions: no Job starts without an entry of the queue."""

import pytest

from exporter.kubernetes.objects import Ref, ScaledObject, ScaledObjectTrigger
from exporter.model import Role, Target, WorkloadKey
from scaler.config import Config, Endpoint, Kubernetes, Redis, SharedGateway
from scaler.explain.document import DecisionExplainer
from scaler.model import Board
from scaler.workloads import take, targets
from tests.fakes.scaled_job import ScaledJobSpec, jobs_started

CHAT = WorkloadKey("ai", "chat")
FRONT = Target("http://redis:9121/metrics", "redis_exporter", Role.GATEWAY, CHAT)


def plan_of(**metadata_keys):
    """Returns the plan that the registry builds of a ScaledJob whose trigger has this metadata."""
    page = Endpoint(redis=Redis(url="redis://redis:6379", lists=("jobs", "doing")))
    config = Config(kubernetes=Kubernetes(), gateways=(SharedGateway(name="jobs", page=page, namespaces=("ai",)),))
    metadata = {"gateway": "jobs", "objectives.work": "1"} | {
        key.replace("__", "."): text for key, text in metadata_keys.items()
    }
    ref = Ref("ai", "ScaledJob", "chat")
    registry = take(
        config, [ScaledObject(ref, ref, triggers=(ScaledObjectTrigger("external", None, metadata),))], (), ()
    )
    (plan,) = targets.Plans(config).take(registry.workloads, jobs=registry.jobs)
    return plan


class Queue:
    """A list, the entries that Jobs have taken from it, and KEDA, which polls every 10 s by the default strategy."""

    def __init__(self, stage, page):
        self.stage, self.page = stage, page
        self.waiting = self.doing = self.jobs = self.started = 0
        self.decisions = []

    def round(self, silent=False):
        """10 s: two scrapes and KEDA's poll; each new Job takes an entry if there is one."""
        text = self.page.redis(self.waiting) + self.page.redis(self.doing, key="doing").replace("redis_up 1\n", "")
        pages = {FRONT: None if silent else text}
        self.stage.round(pages)
        number, active, _ = self.stage.round(pages)
        assert number is None or active == (number > 0)
        self.decisions.append(number)
        new = jobs_started(ScaledJobSpec(), number, self.jobs)
        self.jobs, self.started = self.jobs + new, self.started + new
        started = min(new, self.waiting)
        self.waiting, self.doing = self.waiting - started, self.doing + started
        return self.stage.outcome()

    def end(self, count):
        self.jobs, self.doing = self.jobs - count, self.doing - count


def explained(stage):
    board = Board(1, stage.now, dict(stage.decisions))
    return DecisionExplainer(stage.decider).explain(CHAT, board, stage.now, None, None, None)()


@pytest.fixture
def queue(scene, page):
    def of(**metadata_keys):
        stage = scene(plan_of(**metadata_keys))
        stage.has(gateway=FRONT)
        return Queue(stage, page)

    return of


def test_five_entries_start_five_jobs_and_none_after_they_are_done(queue):
    stage = queue()
    stage.waiting = 5
    stage.round()
    assert (stage.jobs, stage.started) == (5, 5)
    for _ in range(60):  # ten minutes at work
        assert stage.round() == (5, True, "queued")
    stage.end(2)
    assert stage.round() == (3, True, "queued")
    stage.end(3)
    assert [stage.round() for _ in range(60)] == [(0, False, "asleep")] * 60
    assert (stage.jobs, stage.started) == (0, 5)


def test_no_job_is_started_or_replaced_while_the_list_is_silent(queue):
    stage = queue()
    stage.waiting = 3
    stage.round()
    stage.round()
    for _ in range(3):  # fresh for 15 s
        stage.round(silent=True)
    stage.end(3)
    assert {stage.round(silent=True) for _ in range(60)} == {(None, True, "unknown")}
    assert (stage.jobs, stage.started) == (0, 3)
    document = explained(stage.stage)
    assert "a number of Jobs is never held: callers get an error" in document["summary"]
    (sized,) = [each["sentences"] for each in document["chain"] if "A number of Jobs" in " ".join(each["sentences"])]
    assert sized[-1] == "Only requests that are known count; without any the decision is unknown."
    stage.waiting = 2
    assert stage.round() == (2, True, "queued")
    assert stage.started == 5


def test_configured_hold_times_apply_and_start_jobs_without_entries(queue):
    stage = queue(keep_warm="60s", smoothing__down="60s")
    stage.waiting = 4
    stage.round()
    stage.end(4)
    stage.round()
    assert stage.decisions[-1] > 0
    assert stage.started > 4
    assert [stage.round() for _ in range(60)][-1] == (0, False, "asleep")


def test_burst_and_single_entries_start_as_many_jobs_as_entries(queue):
    stage, entries = queue(), 0
    for minute in range(60):
        more = (7, 0, 1, 0, 3)[minute % 5]
        stage.waiting, entries = stage.waiting + more, entries + more
        for _ in range(6):
            stage.round()
        stage.end(stage.jobs - minute % 2 * (stage.jobs // 2))
    assert (stage.started, stage.waiting) == (entries, 0)
