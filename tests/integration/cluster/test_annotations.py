"""Workloads defined by annotations, without KEDA, and workloads in observe mode."""

import grpc

from tests.fakes import objects
from tests.fakes.waiting import until_scraped


def annotations(tenant, **more):
    return {"tidegate.dev/engine": "vllm", "tidegate.dev/port": str(tenant.targets.port), **more}


async def test_annotated_workload_stays_within_the_bounds_of_its_hpa(tenant, page, tidegate):
    tenant.put(objects.hpa("llama", tenant.name, target="llama", minimum=2, maximum=4))
    llama = tenant.deployment("llama", page.vllm(waiting=0, running=5), pods=1, annotations=annotations(tenant))
    await tidegate.until(lambda entry: entry["replicas"] == 2, tenant.name, "llama")
    assert await tidegate.metric(f'tidegate_replicas{{namespace="{tenant.name}",workload="llama"}}') == 2.0

    llama.serve(page.vllm(waiting=390, running=10))
    entry = await tidegate.until(lambda entry: entry["reason"] == "capped", tenant.name, "llama")
    assert (entry["replicas"], entry["observed"]) == (4, False)

    # The bound is raised, and later the annotations are removed.
    tenant.put(objects.hpa("llama", tenant.name, target="llama", minimum=2, maximum=6))
    await tidegate.until(lambda entry: entry["replicas"] == 6, tenant.name, "llama")
    tenant.put(objects.deployment("llama", tenant.name, replicas=1))
    gone = f'tidegate_replicas{{namespace="{tenant.name}",workload="llama"}}'
    await tidegate.until_metric(gone, None)
    assert await tidegate.decision(tenant.name, "llama") is None


async def test_observed_workload_is_published_but_refused_over_grpc(cluster, page, tidegate, keda, request):
    # This workload is in the configuration, with `mode: observe`.
    tenant = cluster.tenant("watched")
    request.addfinalizer(tenant.clear)
    llama = tenant.deployment("only-looked-at", page.vllm(waiting=0, running=40), pods=1)
    scaled = tenant.scaled_object("chat", target="only-looked-at", workload="only-looked-at")
    await until_scraped(llama.pods[0])
    entry = await tidegate.until(lambda entry: entry["replicas"] == 3, "watched", "only-looked-at")
    assert entry["observed"] is True
    code, details = await keda.refusal(scaled)
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert "observe" in details


async def test_annotation_sets_observe_mode(tenant, page, tidegate):
    observed = annotations(tenant, **{"tidegate.dev/mode": "observe", "tidegate.dev/replicas.max": "3"})
    tenant.deployment("llama", page.vllm(waiting=90, running=10), pods=1, annotations=observed)
    entry = await tidegate.until(lambda entry: entry["reason"] == "capped", tenant.name, "llama")
    assert (entry["replicas"], entry["observed"]) == (3, True)
    assert await tidegate.metric(f'tidegate_observed{{namespace="{tenant.name}",workload="llama"}}') == 1.0
