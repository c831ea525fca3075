"""Keep-warm is weighed at the price of the workload's own GPUs."""

import pytest

from exporter.kubernetes.objects import Pod
from exporter.model import PodKey, ReplicaCount, WorkloadKey
from scaler.policy.constraints import KeepWarmConfig
from scaler.policy.prices import PriceList

CHAT = WorkloadKey("ai", "chat")
LOOK_S = 60.0


class Paused:
    """A replica of 8 GPUs."""

    def __init__(self, scene, plan, pod, gateway, page, *, gpu_hours=None, **about):
        self.stage = scene(plan(gateway=True, keep_warm=300.0, about=about), gpu_hours=gpu_hours)
        self._engine, self._front, self._page = pod(), gateway(), page
        self.stage.has(pods=[self._engine], gateway=self._front)
        self.stage.decider.counted(CHAT, ReplicaCount(1, 1, self.stage.now, gpus=8, existing=1))

    def look(self, running=0, more=()):
        pages = {
            **dict(more),
            self._engine: self._page.vllm(waiting=0, running=running),
            self._front: self._page.epp(held=0, ready=1),
        }
        self.stage.round(pages, after=LOOK_S)

    def start(self, seconds):
        for ready in (False, True):
            at = self.stage.now + seconds
            key = PodKey("ai", "chat-a")
            pod = Pod(key, "u", created_at=self.stage.now, node="n", scheduled_at=self.stage.now)
            if ready:
                pod = Pod(key, "u", node="n", scheduled_at=self.stage.now, ready=True, was_ready=True, ready_at=at)
            self.stage.decider.started(CHAT, [pod], at if ready else self.stage.now)


@pytest.fixture
def paused(scene, plan, pod, gateway, page):
    return lambda **about: Paused(scene, plan, pod, gateway, page, **about)


@pytest.mark.parametrize(
    ("prices", "gpu_hour", "keep_warm_s"),
    # 77 s, the end of the bucket of 75, * (1 + 30 / price of a replica).
    [
        (PriceList({"H100": 6.0}), None, 77 * (1 + 30 / 6.0)),
        (PriceList(), None, 77 * (1 + 30 / 6.88)),  # the public price of an H100
        (PriceList({"H100": 6.0}), 1.0, 77 * (1 + 30 / 1.0)),
        (PriceList({"L4": 1.0}, gpu_hour=4.0), None, 77 * (1 + 30 / 4.0)),
        (None, None, 77 * (1 + 30 / 2.5)),  # no price: the default
    ],
)
def test_learned_keep_warm_time_weighs_the_price_of_the_model(paused, page, node, prices, gpu_hour, keep_warm_s):
    learns = KeepWarmConfig(learns=True, lowest=60.0, highest=14400.0)
    chat = paused(gpu_hours=prices, gpu_hour=gpu_hour, teaching=learns)
    chat.start(75.0)
    labels = 'UUID="g",modelName="NVIDIA H100 80GB HBM3",namespace="ai",pod="chat-0",container="c"'
    chat.stage.decider.counted(CHAT, ReplicaCount(1, 1, chat.stage.now, existing=1))
    for _ in range(2):
        chat.look(running=1, more={node(): f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels}}} 0.0\n"})
    assert chat.stage.decision().evidence.keep_warm_s == pytest.approx(keep_warm_s, rel=0.03)
