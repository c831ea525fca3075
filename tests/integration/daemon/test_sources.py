"""From the configuration to targets and plans: which targets are scraped, as which kind, and the policy's
parameters.
"""

import pytest

from exporter.discovery.dns import DnsTargets
from exporter.model import Role, WorkloadKey
from scaler.config import parse
from scaler.policy.columns import Signal
from scaler.workloads import targets

CHAT = WorkloadKey("ai", "chat")


def config(text):
    return parse(text, "config.yaml")[0]


def plans(config):
    return targets.Plans(config).take(config.workloads)


def discoveries(config, workloads=None, cluster=None):
    clients = targets.DiscoveryClients(cluster, None)
    found = targets.places(config, config.workloads if workloads is None else workloads)
    return [targets.discovery(each, config, clients) for each in found]


@pytest.fixture
def full():
    return config(
        """
        scrape: {interval: 2s, timeout: 1s}
        freshness: {hold: 90s}
        gpus:
          - {url: "http://node-1:9400/metrics"}
          - {dns: dcgm.monitoring.svc}
        workloads:
          - namespace: ai
            name: chat
            engine: vllm
            model: m
            pods: {dns: chat.ai.svc}
            gateway: {url: "http://epp:9090/metrics"}
            pod_pattern: "chat-*"
            replicas: {min: 0, max: 6}
            keep_warm: 45s
            objectives: {work: 12, kv_cache: 0.7, gpu_engine: 0.8}
            smoothing: {up: 3s, down: 30s}
            scale_down_band: 0.3
            gpu_quiet: 0.05
          - namespace: ai
            name: jobs
            gateway: {url: "http://redis:9121/metrics", kind: redis_exporter}
        """
    )


def test_targets_have_their_kind_role_and_owner(full):
    found = discoveries(full)
    static = {target.url: target for each in found for target in (each.listing() or ((),))[0]}
    assert {url: (target.kind, target.role, target.owner) for url, target in static.items()} == {
        "http://node-1:9400/metrics": ("dcgm", Role.GPUS, None),
        "http://epp:9090/metrics": ("epp", Role.GATEWAY, CHAT),
        "http://redis:9121/metrics": ("redis_exporter", Role.GATEWAY, WorkloadKey("ai", "jobs")),
    }


def test_only_discovered_pods_count_as_replicas(full):
    # An address in a list of gateways or nodes is no replica.
    assert [each.owner for each in discoveries(full) if each.owner is not None] == [CHAT]


def test_unresolved_names_are_unknown_and_not_empty(full):
    dns = [each for each in discoveries(full) if isinstance(each, DnsTargets)]
    assert [each.listing() for each in dns] == [None, None]


def test_plan_has_the_configured_values(full):
    chat, jobs = plans(full)
    assert (chat.workload, chat.queue, chat.pod_pattern) == (CHAT, "m", "chat-*")
    spec = chat.spec
    assert (spec.minimum, spec.maximum, spec.keep_warm, spec.hold) == (0, 6, 45.0, 90.0)
    assert (spec.band, spec.gpu_quiet, spec.pods, spec.gateway) == (0.3, 0.05, True, True)
    assert dict(spec.targets) == {Signal.WORK: 12.0, Signal.KV_CACHE: 0.7, Signal.GPU_ENGINE: 0.8}
    assert (chat.smoothing.up_s, chat.smoothing.down_s) == (3.0, 30.0)
    assert (jobs.spec.pods, jobs.spec.gateway, jobs.queue) == (False, True, None)


def test_workload_without_engines_has_no_kv_cache_objective(full):
    # KV caches are in the engines' own metrics: without them the guard would be unknown forever.
    _, jobs = plans(full)
    assert dict(jobs.spec.targets) == {Signal.WORK: 1.0}


def test_engine_sets_the_default_work_per_replica():
    text = "workloads: [{{namespace: ai, name: chat, engine: {engine}, pods: {{url: 'http://x/metrics'}}}}]"
    work = {
        engine: dict(plans(config(text.format(engine=engine)))[0].spec.targets)[Signal.WORK]
        for engine in ("vllm", "triton", "llamacpp")
    }
    assert work == {"vllm": 16.0, "triton": 8.0, "llamacpp": 4.0}


def test_workload_without_queue_is_sized_by_its_gpus():
    workload = "{namespace: ai, name: b, objectives: {gpu_engine: 0.5}}"
    gpus = "gpus: [{url: 'http://n:9400/metrics'}]"
    (plan,) = plans(config(f"{gpus}\nworkloads: [{workload}]"))
    assert dict(plan.spec.targets) == {Signal.GPU_ENGINE: 0.5}
    assert (plan.spec.pods, plan.spec.gateway) == (False, False)


def test_keep_warm_is_learned_unless_constant_and_never_shorter_than_the_proof_of_idleness():
    def plan_of(more, interval="5s"):
        head = f"scrape: {{interval: {interval}}}\nworkloads: [{{namespace: ai, name: chat, engine: vllm, "
        config, _ = parse(head + f"pods: {{url: http://a:1}}, gateway: {{url: http://b:1}}{more}}}]", "c.yaml")
        return plans(config)[0]

    assert (plan_of("").spec.keep_warm, plan_of("").teaching) == (300.0, (True, 60.0, 14400.0))
    assert plan_of(", keep_warm: 10m").teaching.learns is False
    assert plan_of(", replicas: {min: 1}").teaching.learns is False
    slow = plan_of(", keep_warm_max: 2m", interval="2m")
    assert (slow.spec.keep_warm, slow.teaching) == (360.0, (True, 360.0, 360.0))
