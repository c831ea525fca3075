"""Self-service without KEDA, and workloads that are only looked at."""

import grpc

from tests.fakes import objects

from .waiting import asked_again


def words(place, **more):
    return {"tidegate.dev/engine": "vllm", "tidegate.dev/port": str(place.pages.port), **more}


async def test_annotations_make_a_workload_between_the_bounds_of_its_hpa(place, page, tidegate):
    place.put(objects.hpa("llama", place.name, target="llama", minimum=2, maximum=4))
    llama = place.deployment("llama", page.vllm(waiting=0, running=5), pods=1, annotations=words(place))
    await tidegate.until(lambda entry: entry["replicas"] == 2, place.name, "llama")
    assert await tidegate.metric(f'tidegate_replicas{{namespace="{place.name}",workload="llama"}}') == 2.0

    llama.say(page.vllm(waiting=390, running=10))
    entry = await tidegate.until(lambda entry: entry["reason"] == "capped", place.name, "llama")
    assert (entry["replicas"], entry["observed"]) == (4, False)

    # Somebody raises the bound, and somebody takes the annotations away.
    place.put(objects.hpa("llama", place.name, target="llama", minimum=2, maximum=6))
    await tidegate.until(lambda entry: entry["replicas"] == 6, place.name, "llama")
    place.put(objects.deployment("llama", place.name, replicas=1))
    gone = f'tidegate_replicas{{namespace="{place.name}",workload="llama"}}'
    await tidegate.until_metric(gone, None)
    assert await tidegate.decision(place.name, "llama") is None


async def test_what_is_only_observed_is_published_and_asking_for_it_is_refused(cluster, page, tidegate, keda, request):
    # This one is in the configuration, `mode: observe`.
    place = cluster.place("watched")
    request.addfinalizer(place.clear)
    llama = place.deployment("only-looked-at", page.vllm(waiting=0, running=40), pods=1)
    scaled = place.scaled_object("chat", target="only-looked-at", workload="only-looked-at")
    await asked_again(llama.pods[0])
    entry = await tidegate.until(lambda entry: entry["replicas"] == 3, "watched", "only-looked-at")
    assert entry["observed"] is True
    code, sentence = await keda.refusal(scaled)
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert "observe" in sentence


async def test_annotations_may_ask_to_be_observed_only(place, page, tidegate):
    annotations = words(place, **{"tidegate.dev/mode": "observe", "tidegate.dev/replicas.max": "3"})
    place.deployment("llama", page.vllm(waiting=90, running=10), pods=1, annotations=annotations)
    entry = await tidegate.until(lambda entry: entry["reason"] == "capped", place.name, "llama")
    assert (entry["replicas"], entry["observed"]) == (3, True)
    assert await tidegate.metric(f'tidegate_observed{{namespace="{place.name}",workload="llama"}}') == 1.0
