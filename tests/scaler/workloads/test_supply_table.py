"""The supply of shared GPUs is made row by row, of what has changed, and is the same as if it were made at once."""

from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.kubernetes.gpu_use import ClusterGpus, GpuKind, TargetGpus
from exporter.kubernetes.kueue import NO_QUEUES, QUEUE_LABEL, KueueQuotas
from exporter.kubernetes.objects import ClusterQueue, FlavorQuota, GpuQuota, Ref, Scalable
from exporter.kubernetes.placement import NO_TRAITS
from exporter.model import WorkloadKey
from scaler.workloads.gpu_supply import request_of, supply
from scaler.workloads.supply_table import SupplySource, SupplyTable

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
KINDS = [GpuKind(GPU, "H100"), GpuKind(GPU, "L4"), GpuKind(MIG, "H100"), GpuKind(GPU)]
TARGETS = [Ref("ai", "Deployment", name) for name in "abc"]
PRICES = {"H100": 6.9, "L4": 0.8}

held = st.dictionaries(st.sampled_from(KINDS), st.integers(1, 4), max_size=2)
mine = st.builds(
    TargetGpus,
    held,
    held,
    st.dictionaries(st.just(GPU), st.just(1)),
    st.dictionaries(st.just((GPU, NO_TRAITS)), st.just(2)),
)
templates = st.dictionaries(
    st.sampled_from(TARGETS),
    st.builds(Scalable, st.just(TARGETS[0]), gpus=st.dictionaries(st.sampled_from([GPU, MIG]), st.just(1), max_size=1)),
)


@st.composite
def counts(draw):
    total = draw(st.dictionaries(st.sampled_from(KINDS), st.integers(0, 9), max_size=4))
    by_target = draw(st.dictionaries(st.sampled_from(TARGETS), mine))
    used = {kind: number for each in by_target.values() for kind, number in (each.held | each.staying).items()}
    quotas = (GpuQuota(Ref("ai", "ResourceQuota", "q"), {GPU: 7}),) if draw(st.booleans()) else ()
    return ClusterGpus(total, used, {}, by_target, quotas, {})


def hour(model):
    return PRICES.get(model, float("nan"))


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(counts(), templates), min_size=1, max_size=5), st.integers(0, 3))
def test_supply_after_any_changes_is_the_one_that_is_made_at_once(steps, part):
    table = SupplyTable(TARGETS, {GPU: 8}, hour)
    for number, (use, known) in enumerate(steps):
        table.update(replace(use, templates=number), known.get)
        table.fill(part)
    table.fill(len(TARGETS))
    requests = [request_of(steps[-1][1].get(target)) for target in TARGETS]
    assert same(table.supply(), supply(steps[-1][0], TARGETS, requests, {GPU: 8}, hour))


def test_only_the_rows_of_changed_pods_are_due():
    one, two = TargetGpus({KINDS[0]: 1}), TargetGpus({KINDS[0]: 2})
    before = ClusterGpus({KINDS[0]: 8}, {KINDS[0]: 2}, {}, {TARGETS[0]: one, TARGETS[1]: one}, (), {})
    after = ClusterGpus({KINDS[0]: 8}, {KINDS[0]: 3}, {}, {TARGETS[0]: one, TARGETS[1]: two}, (), {})
    table = SupplyTable(TARGETS, {}, hour)
    table.update(before, lambda target: Scalable(target, gpus={GPU: 1}))
    assert table.fill(2)
    assert not table.fill(2)
    first = table.supply()
    table.update(after, lambda target: Scalable(target, gpus={GPU: 1}))
    assert not table.fill(1)
    column = 1  # after the kind without a model
    assert (first.held[:, column].tolist(), table.supply().held[:, column].tolist()) == ([1, 1, 0], [1, 2, 0])


def test_unknown_queue_is_said_until_it_is_known():
    def queued(target):
        return Scalable(target, gpus={GPU: 1}, labels={QUEUE_LABEL: "main"} if target == TARGETS[0] else {})

    queue = ClusterQueue(Ref("", "ClusterQueue", "gpus"), {GPU: {"default": FlavorQuota(8, None, None, 0)}})
    known = KueueQuotas({"gpus": queue}, {("ai", "main"): "gpus"})
    table = SupplyTable(TARGETS, {}, hour)
    for kueue, unknown in ((NO_QUEUES, {0: "main"}), (known, {}), (known._replace(queues={}), {0: "main"})):
        table.update(ClusterGpus({}, {}, {}, {}, (), {}, kueue), queued)
        table.fill(len(TARGETS))
        assert table.unknown_queues == unknown


def test_lost_queue_is_returned_once_after_a_while():
    keys = [WorkloadKey("ai", name) for name in "abc"]
    targets = dict(zip(keys, TARGETS, strict=True))
    source, cluster = SupplySource({}, hour), FakeCluster(labels={QUEUE_LABEL: "main"})
    source.at(cluster, keys, targets, 0.0)
    found = [source.lost_queues(at) for at in (0.0, 59.0, 60.0, 61.0)]
    assert [len(each) for each in found] == [0, 0, 3, 0]
    assert min(found[2]) == (keys[0], "main")
    queue = ClusterQueue(Ref("", "ClusterQueue", "gpus"), {GPU: {"default": FlavorQuota(8, None, None, 0)}})
    cluster.use = replace(cluster.use, kueue=KueueQuotas({"gpus": queue}, {("ai", "main"): "gpus"}))
    source.at(cluster, keys, targets, 70.0)
    assert (source.lost_queues(70.0), source.lost_queues(200.0)) == ([], [])


@dataclass
class FakeCluster:
    """As `Cluster`, with a fixed count that takes three parts."""

    use: ClusterGpus = field(default_factory=lambda: ClusterGpus({KINDS[1]: 8}, {}, {}, {}, (), {}))
    parts: int = 3
    labels: dict = field(default_factory=dict)

    def count_gpus(self, targets, most):
        self.parts -= 1
        return self.parts > 0

    def gpu_use(self, targets, now):
        return self.use

    def template(self, target):
        return Scalable(target, gpus={GPU: 1}, labels=self.labels)


def test_preparation_leaves_nothing_to_do_and_workloads_of_one_target_take_no_part():
    keys = [WorkloadKey("ai", name) for name in "abc"]
    targets = {keys[0]: TARGETS[0], keys[1]: TARGETS[1], keys[2]: TARGETS[1]}
    source, cluster = SupplySource({}, hour), FakeCluster()
    parts = 0
    while source.prepare(cluster, keys, targets, 0.0):
        parts += 1
    assert parts >= 3
    found = source.at(cluster, keys, targets, 0.0)
    assert found.gpus.tolist() == [1, 0, 0]
    assert source.at(cluster, keys, targets, 0.0) is found
    cluster.use = None
    assert source.at(cluster, keys, targets, 0.0) is None
    assert not source.prepare(cluster, keys, targets, 0.0)
