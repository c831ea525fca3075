"""A ScaledObject is edited to scale another Deployment: nothing that was learned of the first decides about the second.

The windows never fill here (`freshness.at_start` is an hour), so what the cluster has stays the least all along.
"""

from contextlib import asynccontextmanager

import grpc.aio
import pytest

from exporter.kubernetes.resources import DEPLOYMENTS

from .keda import Keda
from .process import running
from .waiting import asked_again, meanwhile, until

SMALL, LARGE = 3, 20


@pytest.fixture
def config(cluster, tmp_path):
    """The text of a configuration that keeps its state in `tmp_path`, as a file."""
    file = tmp_path / "config.yaml"
    text = cluster.config(f'state: {{directory: "{tmp_path}/state", interval: 1h}}\n')
    # Fresh for so long that no pod's page is late on a busy machine.
    text = text.replace("at_start: 0s", "at_start: 1h").replace("intervals: 5", "intervals: 200")
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture
def deployments(place, page):
    """Two Deployments under load: `small` needs its 3 replicas, of `large` each of 20 pods has a third of its load."""
    place.deployment("small", page.vllm(waiting=0, running=16), pods=SMALL)
    large = place.deployment("large", page.vllm(waiting=0, running=5), pods=LARGE)
    return place, large


@asynccontextmanager
async def connected(daemon):
    async with grpc.aio.insecure_channel(daemon.grpc) as channel:
        yield Keda(channel)


@asynccontextmanager
async def answers_to(keda, scaled):
    """Every change of the answer while the block runs, in order."""
    said = []

    async def ask():
        answer = await keda.answer(scaled)
        if not said or said[-1] != answer:
            said.append(answer)

    async with meanwhile(ask):
        yield said
    await ask()


def numbers(said):
    return [answer[0] for answer in said if isinstance(answer, tuple)]


async def answered(said):
    return bool(said)


async def all_pods_are_read(daemon, place, pods):
    """Every pod of the target answers, so that its demand is known in full."""
    await daemon.until_evidence(place.name, "chat", replicas_wanted=pods, replicas_ready=pods, running=5.0 * pods)
    await daemon.sweeps(5)


async def test_new_scale_target_starts_from_the_replicas_it_has(config, deployments, tmp_path):
    place, _ = deployments
    chat = place.scaled_object("chat", target="small", minimum=1, maximum=40, engine="vllm")
    with running(config, tmp_path / "log") as daemon:
        async with connected(daemon) as keda:
            await keda.until((SMALL, True), chat)
            async with answers_to(keda, chat) as said:
                await until(lambda: answered(said), bool)
                chat["spec"]["scaleTargetRef"]["name"] = "large"
                place.put(chat)
                await all_pods_are_read(daemon, place, LARGE)
    assert numbers(said) == [SMALL, LARGE]


async def test_edit_that_keeps_the_scale_target_keeps_its_state(config, deployments, tmp_path):
    place, _ = deployments
    chat = place.scaled_object("chat", target="small", minimum=1, maximum=40, engine="vllm", keep_warm="6m")
    with running(config, tmp_path / "log") as daemon:
        async with connected(daemon) as keda:
            await keda.until((SMALL, True), chat)
            before = await daemon.until_evidence(place.name, "chat", running=16.0 * SMALL, keep_warm_s=360.0)
            chat["spec"]["triggers"][0]["metadata"]["keep_warm"] = "7m"
            place.put(chat)
            after = await daemon.until_evidence(place.name, "chat", running=16.0 * SMALL, keep_warm_s=420.0)
    assert after["decided_at"] == before["decided_at"], "begun anew, it would have been decided again"
    assert after["replicas"] == SMALL


async def test_scale_target_changed_while_the_daemon_was_away_starts_from_the_replicas_it_has(
    config, deployments, tmp_path
):
    place, _ = deployments
    chat = place.scaled_object("chat", target="small", minimum=1, maximum=40, engine="vllm")
    with running(config, tmp_path / "log") as daemon:
        async with connected(daemon) as keda:
            await keda.until((SMALL, True), chat)
    chat["spec"]["scaleTargetRef"]["name"] = "large"
    place.put(chat)
    with running(config, tmp_path / "log-again") as daemon:
        async with connected(daemon) as keda, answers_to(keda, chat) as said:
            await all_pods_are_read(daemon, place, LARGE)
    assert set(numbers(said)) == {LARGE}


async def test_daemon_without_state_answers_no_number_before_it_knows_how_many_replicas_there_are(
    new_cluster, page, tmp_path
):
    with new_cluster() as cluster:
        place, config = cluster.place("unlisted"), tmp_path / "config.yaml"
        config.write_text(cluster.config().replace("at_start: 0s", "at_start: 1h"), encoding="utf-8")
        large = place.deployment("large", page.vllm(waiting=0, running=16), pods=1, wanted=LARGE)
        chat = place.scaled_object("chat", target="large", minimum=1, maximum=40, engine="vllm")
        cluster.fake.fail(DEPLOYMENTS, 503)
        with running(config, tmp_path / "log") as daemon:
            async with connected(daemon) as keda, answers_to(keda, chat) as said:
                await asked_again(large.pods[0])
                await daemon.sweeps(5)
                assert (await daemon.decision(place.name, "chat"))["reason"] == "unknown"
                cluster.fake.mend()
                await keda.until((LARGE, True), chat)
    assert set(numbers(said)) == {LARGE}
