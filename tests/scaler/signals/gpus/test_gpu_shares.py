"""Tests the GPU readings of a workload, scrape by scrape."""

from dataclasses import replace

import numpy as np
import pytest

from exporter.attribution import owners_by_name
from exporter.catalog import Reader
from exporter.model import PodKey, Role, Target, WorkloadKey
from exporter.textformat import parse
from scaler.signals.gpus import GpuShares, beside, gpu_key
from scaler.signals.slots import Column

CHAT = WorkloadKey("ai", "chat")
NODE = Target("http://node:9400/metrics", "dcgm", Role.GPUS)
GIB = 2.0**30


class Node:
    """One node's exporter, parsed by one reader, as the daemon does."""

    def __init__(self, read, owners, pods=None):
        self.read, self.shares, self.now = read, GpuShares(owners, pods), 1000.0

    def scrape(self, text, after=5.0):
        self.now += after
        return self.shares.read(NODE, self.read(text, at=self.now), self.now).get(CHAT)


@pytest.fixture
def node(samples):
    return Node(samples, owners_by_name({CHAT: None}))


def mig(instance, profile, engine, pod="chat-0"):
    labels = f'UUID="g",modelName="H100",GPU_I_ID="{instance}",GPU_I_PROFILE="{profile}",namespace="ai",pod="{pod}"'
    return f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels}}} {engine}\nDCGM_FI_DEV_POWER_USAGE{{{labels}}} 300\n"


def mean(reading):
    return reading.values[Column.GPU_SUM] / reading.values[Column.GPU_WEIGHT]


def test_mig_instances_of_unequal_size_are_averaged_by_their_share(node):
    reading = node.scrape(mig(1, "3g.40gb", 0.3) + mig(2, "1g.10gb", 1.0))
    assert mean(reading) == pytest.approx((3 * 0.3 + 1 * 1.0) / 4)
    assert reading.values[Column.GPU_COUNT] == 2.0
    assert reading.values[Column.GPU_BUSIEST] == 1.0


def test_whole_gpu_weighs_as_all_its_slices(node, page):
    reading = node.scrape(mig(1, "1g.10gb", 1.0) + page.gpu("h", ["chat-1"], engine=0.2))
    assert mean(reading) == pytest.approx((1 * 1.0 + 7 * 0.2) / 8)


def test_activity_of_an_instance_is_never_divided_by_its_ceiling(node):
    reading = node.scrape(mig(1, "3g.40gb", 0.33))
    assert mean(reading) == pytest.approx(0.33)
    assert reading.values[Column.GPU_CEILING] / reading.values[Column.GPU_WEIGHT] == pytest.approx(1 / 3)


def test_parent_gpu_is_not_counted_beside_its_instance(node):
    parent = 'UUID="g",modelName="H100",namespace="ai",pod="chat-0"'
    text = mig(1, "1g.10gb", 0.6) + f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{parent}}} 0.1\n"
    reading = node.scrape(text)
    assert (reading.values[Column.GPU_COUNT], mean(reading)) == (1.0, pytest.approx(0.6))


def test_gpu_that_no_longer_exposes_its_activity_is_blind(node, page):
    both = page.gpu("g", ["chat-0"], engine=0.0) + page.gpu("h", ["chat-0"], engine=0.0)
    assert node.scrape(both).values[Column.GPU_BLIND] == 0.0
    paused = page.gpu("g", ["chat-0"]) + page.gpu("h", ["chat-0"], engine=0.0)
    values = node.scrape(paused).values
    assert (values[Column.GPU_BLIND], values[Column.GPU_SILENT], values[Column.GPU_BUSIEST]) == (1.0, 1.0, 0.0)
    assert node.scrape(paused, after=3600.0).values[Column.GPU_BLIND] == 1.0
    assert node.scrape(both).values[Column.GPU_BLIND] == 0.0


def test_gpu_keeps_its_known_activity_across_workloads(node, page):
    assert node.scrape(page.gpu("g", engine=0.0)) is None
    assert node.scrape(page.gpu("g", ["chat-0"])).values[Column.GPU_BLIND] == 1.0


def test_gpu_that_never_exposed_its_activity_is_silent_and_not_blind(node, page):
    values = node.scrape(page.gpu("g", ["chat-0"])).values
    assert (values[Column.GPU_SILENT], values[Column.GPU_BLIND]) == (1.0, 0.0)
    assert np.isnan(values[Column.GPU_SUM])
    assert np.isnan(values[Column.GPU_BUSIEST])


def test_utilisation_without_engine_activity_has_no_weight(node, page):
    node.scrape(page.gpu("g", ["chat-0"], engine=0.4, util=50))
    values = node.scrape(page.gpu("g", ["chat-0"], util=50)).values
    assert (values[Column.GPU_UTILISED], values[Column.GPU_BLIND], values[Column.GPU_BUSIEST]) == (1.0, 0.0, 0.5)
    assert np.isnan(values[Column.GPU_WEIGHT])


def test_mixed_node_is_counted_gpu_by_gpu(node, page):
    text = page.gpu("a", ["chat-0"], engine=0.5, util=100) + page.gpu("b", ["chat-0"], util=30)
    values = node.scrape(text + page.gpu("c", ["chat-0"])).values
    columns = [Column.GPU_COUNT, Column.GPU_UTILISED, Column.GPU_SILENT, Column.GPU_SUM, Column.GPU_BUSIEST]
    assert values[columns].tolist() == [3.0, 1.0, 1.0, 0.5, 0.5]


def test_held_memory_is_stored_in_bytes(node):
    labels = 'UUID="g",namespace="ai",pod="chat-0"'
    values = node.scrape(f"DCGM_FI_DEV_FB_USED{{{labels}}} 1024\nDCGM_FI_DEV_GPU_UTIL{{{labels}}} 0\n").values
    assert values[Column.GPU_MEMORY] == 1 * GIB
    assert values[Column.GPU_BUSIEST] == 0.0


class TestLost:
    """The scrapes of one exporter with one reader, so that a change of the Xid is detected."""

    @pytest.fixture
    def node(self):
        reader = Reader("dcgm")
        return Node(lambda text, at: reader.read(parse(text.encode()), at), owners_by_name({CHAT: None}))

    def page(self, xid, engine=None):
        labels = 'UUID="g",namespace="ai",pod="chat-0"'
        text = f"DCGM_FI_DEV_XID_ERRORS{{{labels}}} {xid}\n"
        text += f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels}}} {engine}\n" if engine is not None else ""
        other = labels.replace('"g"', '"h"')
        return text + f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{other}}} 0.25\n"

    def test_lost_gpu_is_counted_and_left_out_of_the_mean(self, node):
        node.scrape(self.page(0, engine=0.75))
        assert mean(node.scrape(self.page(79, engine=0.75))) == 0.5
        values = node.scrape(self.page(79)).values
        columns = [Column.GPU_COUNT, Column.GPU_LOST, Column.GPU_SILENT, Column.GPU_BLIND, Column.GPU_SUM]
        assert values[columns].tolist() == [2.0, 1.0, 0.0, 0.0, 0.25]
        assert values[Column.GPU_WEIGHT] == 1.0


class Began:
    """Owners that know when each pod started."""

    def __init__(self, at):
        self.at, self.calls = at, []

    def __call__(self, pod, at):
        self.calls.append((pod, at))
        return (CHAT,) if at >= self.at else ()


def test_value_that_may_be_older_than_its_pod_is_not_attributed_to_it(samples, page):
    owners = Began(1000.0)
    node = Node(samples, owners)
    node.now = 1000.0
    text = page.gpu("g", ["chat-0"], engine=0.9)
    assert node.scrape(text, after=29.9) is None  # it may have been measured 30 s before
    assert node.scrape(text, after=0.1) is not None
    assert owners.calls[-1] == (PodKey("ai", "chat-0"), 1000.0)


def test_maximum_age_of_a_value_is_learned_from_the_scrapes(samples):
    owners = Began(0.0)
    node = Node(samples, owners)
    labels = 'UUID="g",namespace="ai",pod="chat-0"'
    for step in range(40):  # collected every 10 s, scraped every 5 s
        text = f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{labels}}} {step // 2}\n"
        reading = node.scrape(text + f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels}}} 0.5\n")
    assert reading.values[Column.GPU_LAG] == 15.0
    assert node.shares.lag_s(NODE) == 15.0
    assert owners.calls[-1][1] == node.now - 15.0


def test_target_with_constant_values_becomes_stale(samples):
    node = Node(samples, Began(0.0))
    labels = 'UUID="g",namespace="ai",pod="chat-0"'

    def text(energy):
        engine = f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels}}} 0.0\n"
        return f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{labels}}} {energy}\n{engine}"

    for step in range(40):
        assert node.scrape(text(step // 2)).at == node.now
    changed = node.now - 5.0
    assert node.scrape(text(19), after=30.0).at == node.now
    assert node.scrape(text(19), after=30.0).at == changed
    assert node.scrape(text(20)).at == node.now


def test_new_list_of_workloads_keeps_the_state_of_a_target(samples, page):
    old = Node(samples, owners_by_name({CHAT: None}))
    old.scrape(page.gpu("g", ["chat-0"], engine=0.5))
    new = Node(samples, owners_by_name({CHAT: None}))
    new.shares.adopt(old.shares)
    assert new.scrape(page.gpu("g", ["chat-0"])).values[Column.GPU_BLIND] == 1.0
    new.shares.forget(NODE)
    assert new.scrape(page.gpu("g", ["chat-0"])).values[Column.GPU_BLIND] == 0.0
    assert [target for target, _, _ in new.shares.pages()] == [NODE]


def test_power_is_added_up_over_the_gpus_that_expose_it(node, page):
    without = 'DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="b",namespace="ai",pod="chat-0"} 0.5\n'
    values = node.scrape(page.gpu("a", ["chat-0"]) + page.gpu("c", ["chat-0"]) + without).values
    assert values[[Column.GPU_COUNT, Column.GPU_POWERED, Column.GPU_WATTS]].tolist() == [3.0, 2.0, 200.0]


def test_gpu_that_lost_its_label_sizes_for_a_minute_and_may_keep_awake_for_longer(node, page):
    """No cluster shows whether its pod has ended."""
    kept = page.gpu("h", ["chat-0"], engine=0.25)
    node.scrape(page.gpu("g", ["chat-0"], engine=0.75) + kept)
    lost = page.gpu("g", engine=0.75) + kept
    columns = [Column.GPU_COUNT, Column.GPU_SUM, Column.GPU_BUSIEST]
    assert node.scrape(lost, after=60.0).values[columns].tolist() == [2.0, 1.0, 0.75]
    assert node.scrape(lost, after=0.5).values[columns].tolist() == [1.0, 0.25, 0.75]


def test_lost_label_is_known_after_a_restart(samples, page):
    before, after = (Node(samples, owners_by_name({CHAT: None})) for _ in range(2))
    assert before.shares.unlabelled(NODE) == ()
    before.scrape(page.gpu("g", ["chat-0"], engine=0.5))
    assert before.shares.unlabelled(NODE) == ()
    lost = page.gpu("g", engine=0.5)
    before.scrape(lost)
    after.shares.restore(NODE, before.shares.unlabelled(NODE))
    assert after.scrape(lost).values[Column.GPU_COUNT] == 1.0


class Cluster:
    """The pods of a cluster, all of them on one node."""

    def named(self, pod):
        return pod

    def node_of(self, pod):
        return "node-a"


@pytest.mark.parametrize(("pods", "count"), [(None, 1.0), (Cluster(), 2.0)], ids=["no cluster", "cluster"])
def test_missing_gpu_counts_for_five_minutes_or_while_the_cluster_has_its_pod(page, pods, count):
    reader = Reader("dcgm")  # one, which notices what is missing
    node = Node(lambda text, at: reader.read(parse(text.encode()), at), owners_by_name({CHAT: None}), pods)
    kept = page.gpu("h", ["chat-0"], engine=0.25)
    node.scrape(page.gpu("g", ["chat-0"], engine=0.75) + kept)
    counts = [node.scrape(kept, after=seconds).values[Column.GPU_COUNT] for seconds in (5.0, 295.0, 0.5)]
    assert counts == [2.0, 2.0, count]


def test_whole_gpu_may_be_active_for_all_of_the_time(node, page):
    values = node.scrape(page.gpu("g", ["chat-0"], engine=0.5)).values
    assert (values[Column.GPU_WEIGHT], values[Column.GPU_CEILING]) == (1.0, 1.0)


def test_gpu_that_exposed_its_activity_before_a_restart_alone_is_blind_after_it(node, page):
    node.shares.believe([gpu_key("g", None)])
    values = node.scrape(page.gpu("g", ["chat-0"]) + page.gpu("h", ["chat-0"])).values
    assert values[[Column.GPU_SILENT, Column.GPU_BLIND]].tolist() == [2.0, 1.0]


@pytest.fixture
def steady(samples):
    """Parses responses, and keeps the subjects of the first one, as a reader does while they are equal."""
    first = []

    def read(text, at):
        found = samples(text, at=at)
        first.append(found.subjects)
        assert found.subjects == first[0]
        return replace(found, subjects=first[0])

    return read


def test_gpu_that_exposes_its_activity_later_than_another_is_blind_without_it(steady, page):
    node = Node(steady, owners_by_name({CHAT: None}))
    first, second = page.gpu("g", ["chat-0"], engine=0.5), page.gpu("h", ["chat-0"], engine=0.5)
    silent = page.gpu("h", ["chat-0"])
    blind = [node.scrape(first + each).values[Column.GPU_BLIND] for each in (silent, second, silent)]
    assert blind == [0.0, 0.0, 1.0]


def test_gpu_of_a_new_pod_is_added_once_its_values_are_of_that_pod(steady, page):
    node = Node(steady, lambda pod, at: (CHAT,) if pod.pod == "chat-0" or at >= 1000.0 else ())
    text = page.gpu("g", ["chat-0"], engine=0.5) + page.gpu("h", ["chat-1"], engine=0.25)
    sums = [node.scrape(text, after=seconds).values[Column.GPU_SUM] for seconds in (29.9, 0.1)]
    assert sums == [0.5, 0.75], "until then they may have been measured 30 s before"


class TestBeside:
    """The GPUs that an engine's response has beside its queues."""

    ENGINE = Target("http://10.0.0.1:8000/metrics", "tidegate", Role.PODS, CHAT, pod=PodKey("ai", "chat-0"))

    def found(self, target, samples, page):
        text = page.gpu("g", ["chat-0"], engine=0.5) + page.gpu("h", ["other-0"], engine=0.25) + page.gpu("i")
        found = beside(target, samples(text, at=1000.0))
        return None if found is None else [gpu.uuid for gpu in found.subjects]

    def test_gpus_of_another_pod_do_not_count(self, samples, page):
        assert self.found(self.ENGINE, samples, page) == ["g"]

    def test_gpus_of_all_pods_count_where_the_engine_has_no_known_pod(self, samples, page):
        assert self.found(replace(self.ENGINE, pod=None), samples, page) == ["g", "h"]

    def test_target_of_gpus_alone_has_none_beside(self, samples, page):
        assert self.found(NODE, samples, page) is None

    def test_pod_without_a_gpu_has_none_beside(self, samples, page):
        assert self.found(replace(self.ENGINE, pod=PodKey("ai", "chat-9")), samples, page) is None
