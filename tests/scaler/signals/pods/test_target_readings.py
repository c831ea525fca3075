"""What is shown of each target of a workload: its numbers, and why it does not count."""

from dataclasses import replace

import pytest

from exporter.attribution import owners_by_name
from exporter.catalog import Reader
from exporter.model import Role, Target, WorkloadKey
from exporter.textformat import parse
from scaler.signals.latest import LatestSamples, TargetRules

CHAT = WorkloadKey("ai", "chat")
ENGINE = Target("http://10.0.0.1:8000/metrics", "vllm", Role.PODS, CHAT)
GATEWAY = Target("http://10.0.0.2:9090/metrics", "vllm", Role.GATEWAY, CHAT)
NODE = Target("http://node-1:9400/metrics", "dcgm", Role.GPUS)


@pytest.fixture
def intake():
    return LatestSamples([TargetRules(CHAT, pods=True, slo=(2.0, 0.1))], owners_by_name({CHAT: None}), 15.0)


def only(intake, now):
    (reading,) = intake.pages(CHAT, now)
    return reading


def test_engine_shows_its_requests_and_its_age_and_no_gpus(intake, samples, page):
    intake.land(ENGINE, samples(page.vllm(waiting=3, running=4, kv=0.5), at=100.0), 100.0)
    reading = only(intake, 107.0)
    assert (reading.name, reading.of, reading.age_s, reading.fresh, reading.why) == (ENGINE.url, "pods", 7.0, True, "")
    assert (reading.waiting, reading.running, reading.held, reading.kv_cache) == (3.0, 4.0, None, 0.5)
    assert (reading.gpus, reading.gpu_active) == (None, None)
    assert only(intake, 99.0).age_s == 0.0, "a clock that was set back"


def test_gpu_target_shows_its_gpus_and_their_mean_activity(intake, samples, page):
    text = page.gpu("GPU-1", ["chat-0"], engine=0.4) + page.gpu("GPU-2", ["chat-0"], engine=0.8)
    intake.land(NODE, samples(text, at=100.0), 100.0)
    reading = only(intake, 100.0)
    assert (reading.of, reading.gpus, reading.gpu_active) == ("gpus", 2.0, pytest.approx(0.6))
    assert (reading.waiting, reading.running) == (None, None)


def test_target_that_does_not_count_says_why(intake, samples, page):
    intake.expect(ENGINE)
    never = only(intake, 100.0)
    assert (never.age_s, never.fresh, never.why) == (None, False, "no: it never answered")
    intake.land(ENGINE, samples(page.vllm(waiting=3, running=4), at=100.0), 100.0)
    assert (only(intake, 115.0).why, only(intake, 115.0).fresh) == ("", True)
    assert (only(intake, 115.1).why, only(intake, 115.1).fresh) == ("no: too old", False)
    intake.leaving(CHAT, [ENGINE])
    assert only(intake, 115.0).why == "as activity: its pod is on its way out"


@pytest.mark.parametrize(("left", "more"), [({"running": 4}, ""), ({}, " and 1 more")])
def test_incomplete_target_counts_as_a_lower_bound(intake, page, left, more):
    reader = Reader("vllm")
    for at, text in ((100.0, page.vllm(waiting=3, running=4, finished=5)), (105.0, page.vllm(finished=5, **left))):
        intake.land(ENGINE, reader.read(parse(text.encode()), at), at)
    reading = only(intake, 105.0)
    assert reading.why.startswith("as a lower bound: vllm:num_requests_")
    assert reading.why.endswith(f" is missing{more}")
    assert reading.fresh is False
    (*_, last) = intake.incomplete(CHAT, 115.0)
    assert last.endswith(f" of {ENGINE.url} is missing for 15 s"), "since it was last there"


def test_targets_are_sorted_by_role_and_name(intake, samples, page):
    others = [replace(ENGINE, url=f"http://10.0.0.{n}:8000/metrics") for n in (9, 3)]
    for target in (GATEWAY, *others, ENGINE):
        intake.expect(target)
    assert [reading.name for reading in intake.pages(CHAT, 0.0)] == [
        GATEWAY.url, "http://10.0.0.1:8000/metrics", "http://10.0.0.3:8000/metrics", "http://10.0.0.9:8000/metrics",
    ]  # fmt: skip


def test_slo_is_unmeasured_where_a_fresh_engine_shows_no_buckets(intake, samples, page):
    buckets = {"1.0": 5, "2.0": 9, "+Inf": 10}
    intake.expect(GATEWAY)
    intake.land(ENGINE, samples(page.vllm(waiting=0, running=1, ttft=buckets), at=100.0), 100.0)
    assert intake.untimed(CHAT, 100.0) == ("itl",)
    assert intake.untimed(CHAT, 115.1) == ()
