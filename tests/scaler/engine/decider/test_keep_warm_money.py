"""Keep-warm is weighed at the price of the workload's own GPUs, and one more hour of it shows its cost and saving."""

import pytest

from exporter.kubernetes.objects import Pod
from exporter.model import PodKey, ReplicaCount, WorkloadKey
from scaler.explain.document import DecisionExplainer
from scaler.explain.further_hour import sentences
from scaler.model import Board
from scaler.policy.constraints import KeepWarmConfig
from scaler.policy.prices import PriceList

CHAT = WorkloadKey("ai", "chat")
LOOK_S = 60.0


class Paused:
    """Three pauses of 25 min, 5 min of them warm, on a replica of 8 GPUs at 3 per hour each."""

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

    def pauses(self, count):
        for _ in range(count):
            self.look(running=1)
            for _ in range(25):
                self.look()
        self.look(running=1)

    def start(self, seconds):
        for ready in (False, True):
            at = self.stage.now + seconds
            key = PodKey("ai", "chat-a")
            pod = Pod(key, "u", created_at=self.stage.now, node="n", scheduled_at=self.stage.now)
            if ready:
                pod = Pod(key, "u", node="n", scheduled_at=self.stage.now, ready=True, was_ready=True, ready_at=at)
            self.stage.decider.started(CHAT, [pod], at if ready else self.stage.now)

    def document(self, at=None):
        stage = self.stage
        board = Board(1, stage.now, dict(stage.decisions))
        return DecisionExplainer(stage.decider).explain(CHAT, board, stage.now, at, None, None)()


@pytest.fixture
def paused(scene, plan, pod, gateway, page):
    return lambda **about: Paused(scene, plan, pod, gateway, page, **about)


def step(document):
    return next(each["sentences"] for each in document["chain"] if each["step"] == "overrides")


def test_hour_more_is_explained_to_the_reader_of_an_idle_workload(paused):
    chat = paused(gpu_hour=3.0)
    chat.start(75.0)
    chat.pauses(3)
    chat.look()
    # Three in 80 min are 54 a day. Each holds 8 GPUs for 20 min more, at 8.00, and saves 75 s of them and of the wait.
    document = chat.document()
    hour = document["further_hour"]
    assert hour["cost"] == pytest.approx(54 * 8.0, rel=0.05)
    assert hour["gpu_seconds"] == pytest.approx(54 * 20 * 60 * 8, rel=0.05)
    assert hour["cold_starts"] == pytest.approx(54, rel=0.02)
    assert hour["saved"] == pytest.approx(54 * 75 * (8 * 3 + 30) / 3600, rel=0.05)
    assert step(document)[2:3] == sentences(hour)
    assert sentences(hour)[0].startswith("By its last 3 pauses, one more hour of keep-warm would cost 4")


def test_without_a_price_the_gpu_hours_are_shown_and_no_money(paused):
    chat = paused()
    chat.pauses(3)
    chat.look()
    hour = chat.document()["further_hour"]
    assert (hour["cost"], hour["saved"], hour["waiting_s"]) == (None, None, None)
    assert sentences(hour)[0].endswith("cold starts. No price is configured.")


@pytest.mark.parametrize("pauses", [0, 1])
def test_nothing_is_shown_before_a_pause_has_ended_and_an_hour_is_over(paused, pauses):
    chat = paused(gpu_hour=3.0)
    chat.pauses(pauses)
    chat.look()
    document = chat.document()
    assert document["further_hour"] is None
    assert not [sentence for sentence in step(document) if "one more hour" in sentence]


def test_past_decision_and_a_busy_workload_do_not_show_it(paused):
    chat = paused(gpu_hour=3.0)
    chat.pauses(3)
    assert not [sentence for sentence in step(chat.document()) if "one more hour" in sentence]
    assert chat.document(at=chat.stage.now)["further_hour"] is None


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
