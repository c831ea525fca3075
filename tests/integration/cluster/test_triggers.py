"""A trigger of two lines, the third one that lets it sleep, and who else may speak."""

import copy

import grpc

from .waiting import asked_again

QUICK = {"keep_warm": "1s", "smoothing.up": "0s", "smoothing.down": "0.3s"}


async def test_two_lines_make_a_workload(place, page, tidegate, keda):
    # 10 requests at 16 a replica, and at least 2 replicas; the ScaledObject is called otherwise than what it scales.
    llama = place.deployment("llama", page.vllm(waiting=0, running=5), pods=2)
    chat = place.scaled_object("chat", target="llama", minimum=2, maximum=4, engine="vllm")
    await keda.until((2, True), chat)

    # 22 + 22 = 44 requests, 2.75 replicas' worth.
    llama.say(page.vllm(waiting=12, running=10))
    await keda.until((3, True), chat)

    # 400 requests are 25 replicas' worth, and maxReplicaCount says 4.
    llama.say(page.vllm(waiting=190, running=10))
    await keda.until((4, True), chat)
    entry = await tidegate.until(lambda entry: entry["reason"] == "capped", place.name, "chat")
    assert (entry["evidence"]["replicas_wanted"], entry["evidence"]["replicas_ready"]) == (2, 2)

    # The HPA follows: the new pods are found and asked.
    llama.scale(4)
    new = [llama.pod(page.vllm(waiting=0, running=10)) for _ in range(2)]
    await asked_again(new[0])
    await tidegate.until_evidence(place.name, "chat", replicas_ready=4, running=40.0)
    assert await tidegate.decision(place.name, "llama") is None


async def test_with_a_gateway_it_sleeps_and_a_request_wakes_it_through_the_stream(place, page, tidegate, keda):
    front = place.service("front", page.epp(held=0, ready=0))
    llama = place.deployment("llama")
    chat = place.scaled_object("chat", target="llama", minimum=0, maximum=4, engine="vllm", gateway="front", **QUICK)
    await keda.until((0, False), chat)
    async with keda.pushes(chat) as pushed:
        assert await pushed() is False

        front.text = page.epp(held=1, ready=0)
        assert await pushed() is True
        assert await keda.answer(chat) == (1, True)

        # KEDA makes one replica; it loads; the request goes on from the gateway to it.
        llama.scale(1)
        pod = llama.pod(ready=False, listening=False)
        await tidegate.until_evidence(place.name, "chat", replicas_wanted=1, replicas_ready=0)
        pod.listens(page.vllm(waiting=0, running=1, finished=0))
        pod.put(ready=True)
        await tidegate.until_evidence(place.name, "chat", running=1.0)
        front.text = page.epp(held=0, ready=1)
        await asked_again(front)
        assert await keda.answer(chat) == (1, True)

        # Done, and idle for the keep-warm time.
        pod.says(page.vllm(waiting=0, running=0, finished=1))
        await keda.until((0, False), chat)
        assert await pushed() is False
        async with keda.watching(chat) as seen:
            llama.scale(0)
            await tidegate.until_evidence(place.name, "chat", replicas_wanted=0)
            pod.leaves()
            await asked_again(front)
            pod.ends()
            await tidegate.until_evidence(place.name, "chat", replicas_wanted=0, replicas_ready=0)
            await asked_again(front)
        assert seen == [(0, False)]


async def test_two_workloads_on_one_gateway_hear_of_their_own_model_alone(place, page, tidegate, keda):
    def both(small, large):
        return page.epp(held=small, ready=0, pool="small") + page.epp(held=large, ready=0, pool="large")

    front = place.service("front", both(0, 0))
    scaled = {}
    for model in ("small", "large"):
        place.deployment(model)
        words = {"engine": "vllm", "gateway": "front", "model": model, **QUICK}
        scaled[model] = place.scaled_object(f"{model}-so", target=model, minimum=0, maximum=9, **words)
        await keda.until((0, False), scaled[model])

    async with keda.watching(scaled["large"]) as large:
        front.text = both(40, 0)
        await keda.until((3, True), scaled["small"])
        await asked_again(front)
    assert large == [(0, False)]

    async with keda.watching(scaled["small"]) as small:
        front.text = both(40, 17)
        await keda.until((2, True), scaled["large"])
    assert small == [(3, True)]


async def test_a_rogue_call_is_refused_and_changes_nobodys_answer(place, page, tidegate, keda):
    place.deployment("llama", page.vllm(waiting=0, running=40), pods=1)
    chat = place.scaled_object("chat", target="llama", minimum=1, maximum=4, engine="vllm")
    broken = place.scaled_object("broken", target="other", engine="vllm", keep_wram="1s")
    await keda.until((3, True), chat)

    made_up, otherwise, more = (copy.deepcopy(chat) for _ in range(3))
    made_up["metadata"]["name"] = "made-up"
    otherwise["spec"]["triggers"][0]["metadata"]["engine"] = "sglang"
    more["spec"]["triggers"][0]["metadata"]["objectives.work"] = "1"
    abroad = copy.deepcopy(chat)
    abroad["metadata"]["namespace"] = "kube-system"
    async with keda.watching(chat) as seen:
        for _ in range(10):
            assert [(await keda.refusal(call))[0] for call in (made_up, abroad, otherwise, more, broken)] == [
                grpc.StatusCode.PERMISSION_DENIED,
                grpc.StatusCode.PERMISSION_DENIED,
                grpc.StatusCode.PERMISSION_DENIED,
                grpc.StatusCode.PERMISSION_DENIED,
                grpc.StatusCode.INVALID_ARGUMENT,
            ]
        await tidegate.sweeps(5)
    assert seen == [(3, True)]
    assert "keep_warm" in (await keda.refusal(broken))[1]
    assert "sglang" not in (await keda.refusal(otherwise))[1]
    assert tidegate.logged("call refused")
    board = (await tidegate.get("/api/v1/board")).json()["workloads"]
    ours = [entry["workload"]["name"] for entry in board if entry["workload"]["namespace"] == place.name]
    assert ours == ["chat"]
    assert not [entry for entry in board if entry["workload"]["namespace"] == "kube-system"]


async def test_an_address_of_another_namespace_behind_a_service_is_never_asked(place, page, cluster, keda, request):
    stranger = cluster.place(f"other-{place.name}"[:60])
    request.addfinalizer(stranger.clear)
    secret = stranger.service("front", page.epp(held=99, ready=1))
    front = place.service("front", page.epp(held=0, ready=0))
    place.endpoints("front", front.address, secret.address)
    place.deployment("llama")
    chat = place.scaled_object("chat", target="llama", minimum=0, maximum=9, engine="vllm", gateway="front", **QUICK)
    await keda.until((0, False), chat)
    await asked_again(front)
    assert (secret.asked, await keda.answer(chat)) == (0, (0, False))
