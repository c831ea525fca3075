"""Activity from the GPU's counters is the average between two consecutive readings."""

from math import nan

import pytest

from exporter.model import Quantity
from exporter.sources.nvml.library import NvmlCode

ACTIVITY = (
    Quantity.GPU_ENGINE_ACTIVE,
    Quantity.GPU_SM_ACTIVE,
    Quantity.GPU_TENSOR_ACTIVE,
    Quantity.GPU_DRAM_ACTIVE,
    Quantity.GPU_SM_OCCUPANCY,
)
UNKNOWN = pytest.approx([nan] * 5, nan_ok=True)


class Card:
    """Holds a GPU with counters and its reader; `passes` advances the time and the counters."""

    def __init__(self, fake, node, **counters):
        self.gpu = fake.FakeGpu(gpm=True, counters=dict.fromkeys(["engine", "sm", "occupancy", "tensor", "dram"], 0.0))
        self.library = fake.FakeNvml([self.gpu])
        self.now = 1000.0
        self._read = node(self.library).read

    def passes(self, seconds, **active):
        self.now += seconds
        self.library.clock += seconds
        for counters in [self.gpu.counters, *(part.counters for part in self.gpu.mig or ())]:
            for name, ratio in active.items():
                counters[name] = counters.get(name, 0.0) + ratio * seconds

    def read(self, row=0):
        samples = self._read(self.now)
        self.dropped = samples.dropped
        return [float(samples.column(quantity)[row]) for quantity in ACTIVITY]


@pytest.fixture
def card(fake, node):
    return Card(fake, node)


def test_first_reading_has_no_activity(card):
    assert card.read() == UNKNOWN


def test_activity_is_the_average_since_the_last_reading(card):
    card.read()
    card.passes(3.0, engine=1.0, sm=0.5, tensor=0.25, dram=0.1, occupancy=0.4)
    card.passes(2.0)

    assert card.read() == pytest.approx([0.6, 0.3, 0.15, 0.06, 0.24])

    card.passes(5.0)

    assert card.read() == [0.0] * 5


def test_activity_is_at_most_one(card):
    card.read()
    card.passes(5.0, engine=1.0, sm=1.294)

    assert card.read()[:2] == [1.0, 1.0]


def test_unsupported_metric_costs_only_itself(card):
    del card.gpu.counters["tensor"]
    card.read()
    card.passes(5.0, engine=0.5)

    assert card.read() == pytest.approx([0.5, 0.0, nan, 0.0, 0.0], nan_ok=True)
    assert card.dropped == ()


def test_nan_metric_is_unknown(card):
    card.read()
    card.passes(5.0, engine=nan)

    assert card.read() == pytest.approx([nan, 0.0, 0.0, 0.0, 0.0], nan_ok=True)


def test_immediate_second_reading_repeats_the_first(card):
    card.read()
    card.passes(5.0, engine=0.4)
    first = card.read()
    card.passes(0.05, engine=1.0)

    assert card.read() == first


def test_average_over_a_long_pause_is_unknown(card):
    card.read()
    card.passes(600.0, engine=0.5)
    assert card.read() == UNKNOWN

    card.passes(5.0, engine=0.5)
    assert card.read()[0] == pytest.approx(0.5)


@pytest.mark.parametrize("function", ["nvmlGpmSampleGet"])
def test_failed_sample_costs_two_readings_and_leaks_no_memory(card, function):
    card.read()
    card.passes(5.0, engine=0.5)
    card.gpu.refuse[function] = [NvmlCode.UNKNOWN]
    assert card.read() == UNKNOWN
    assert "GPM sample: UNKNOWN" in card.dropped[0].reason
    assert card.library.allocated == 0

    card.passes(5.0, engine=0.5)
    assert card.read() == UNKNOWN
    card.passes(5.0, engine=0.5)
    assert card.read()[0] == pytest.approx(0.5)


def test_failed_metrics_cost_one_reading(card):
    card.read()
    card.passes(5.0, engine=0.5)
    card.library.refuse["nvmlGpmMetricsGet"] = [NvmlCode.UNKNOWN]
    assert card.read() == UNKNOWN

    card.passes(5.0, engine=0.5)
    assert card.read()[0] == pytest.approx(0.5)


def test_failed_allocation_of_a_sample_is_reported(card):
    card.library.refuse["nvmlGpmSampleAlloc"] = 20  # NVML_ERROR_MEMORY

    assert card.read() == UNKNOWN
    assert card.dropped[0].reason == "GPU 0 (GPU-1): GPM sample: NVML error 20"


def test_gpu_keeps_only_one_sample(card):
    for _ in range(5):
        card.passes(5.0)
        card.read()

    assert card.library.allocated == 1


def test_lost_gpu_leaves_no_sample(card):
    card.read()
    card.gpu.lost = True
    card.passes(5.0)
    card.read()

    assert card.library.allocated == 0


def test_gpu_without_counters_gets_no_sample_call(card):
    card.gpu.gpm = False

    assert card.read() == UNKNOWN
    assert "nvmlGpmSampleGet" not in card.gpu.calls


def test_mig_instance_has_activity_and_its_gpu_none(card, fake):
    card.gpu.mig = [fake.FakeInstance(3, "1g.10gb", counters={"engine": 0.0})]
    card.read()
    card.passes(4.0, engine=0.25)
    gpu, instance = card._read(card.now).column(Quantity.GPU_ENGINE_ACTIVE).tolist()

    assert (gpu, instance) == pytest.approx((nan, 0.25), nan_ok=True)


def test_new_instance_with_an_old_number_starts_without_a_sample(card, fake):
    card.gpu.mig = [fake.FakeInstance(3, "1g.10gb", uuid="MIG-old", counters={"engine": 0.0})]
    card.read()
    card.passes(5.0, engine=0.5)
    card.gpu.mig = [fake.FakeInstance(3, "1g.10gb", uuid="MIG-new", counters={"engine": 0.0})]

    assert card.read(row=1) == UNKNOWN
    assert card.library.allocated == 1
