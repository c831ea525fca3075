"""A GPU is lost if its activity disappears after a new fatal Xid."""

import numpy as np
import pytest

from exporter.catalog import Reader
from exporter.catalog.gpus import FATAL, SUSPECTED_S
from exporter.model import Quantity
from exporter.textformat import parse


def gpu(xid=None, engine=0.9, uuid="g", instance=None, **more):
    """Returns the lines of one GPU; None omits a family."""
    mig = f',GPU_I_ID="{instance}",GPU_I_PROFILE="3g.40gb"' if instance else ""
    fields = {"DEV_XID_ERRORS": xid, "PROF_GR_ENGINE_ACTIVE": engine, **more}
    return "".join(
        f'DCGM_FI_{name}{{UUID="{uuid}"{mig}}} {value}\n' for name, value in fields.items() if value is not None
    )


class Pages:
    """Reads the pages of one exporter, one every 30 s."""

    def __init__(self):
        self.reader, self.now = Reader("dcgm"), 1000.0

    def lost(self, text, after=30.0):
        """Returns (UUID, instance) of the GPUs that are lost on this page."""
        self.now += after
        samples = self.reader.read(parse((text + 'DCGM_FI_DEV_SM_CLOCK{UUID="g"} 1\n').encode()), self.now)
        lost = samples.column(Quantity.GPU_LOST)
        assert set(lost[~np.isnan(lost)]) <= {1.0}
        return [(s.uuid, s.instance) for s, is_lost in zip(samples.subjects, lost, strict=True) if is_lost == 1.0]


@pytest.fixture
def pages():
    return Pages()


@pytest.mark.parametrize("before", [None, 0, 31])
@pytest.mark.parametrize("code", sorted(FATAL))
def test_gpu_without_activity_after_a_new_fatal_error_is_lost(pages, before, code):
    assert pages.lost(gpu(before)) == []
    assert pages.lost(gpu(code)) == []
    assert pages.lost(gpu(code, engine=None)) == [("g", None)]
    assert pages.lost(gpu(code, engine=None), after=9999.0) == [("g", None)]


def test_gpu_is_lost_if_code_and_missing_activity_come_in_one_response(pages):
    pages.lost(gpu(0))
    assert pages.lost(gpu(79, engine=None)) == [("g", None)]


def test_code_of_the_first_response_proves_nothing(pages):
    """The value is never cleared: it may be a month old."""
    pages.lost(gpu(79))
    assert pages.lost(gpu(79, engine=None)) == []


def test_missing_activity_alone_is_no_error(pages):
    pages.lost(gpu(0))
    assert pages.lost(gpu(0, engine=None)) == []


@pytest.mark.parametrize("code", [13, 31, 43, 45, 63, 74, 92, 94])
def test_application_error_without_activity_loses_no_gpu(pages, code):
    """After Xid 31 the profiling fields may stay blank on a healthy GPU (NVIDIA/DCGM#202)."""
    pages.lost(gpu(0))
    pages.lost(gpu(code))
    assert pages.lost(gpu(code, engine=None)) == []


def test_gpu_that_keeps_its_activity_is_not_lost(pages):
    pages.lost(gpu(0))
    assert pages.lost(gpu(79)) == []
    assert pages.lost(gpu(79), after=SUSPECTED_S + 1) == []
    assert pages.lost(gpu(79, engine=None)) == []


def test_utilization_counts_as_activity(pages):
    pages.lost(gpu(0))
    assert pages.lost(gpu(48, engine=None, DEV_GPU_UTIL=0)) == []


def test_gpu_that_never_had_activity_is_not_lost(pages):
    pages.lost(gpu(0, engine=None))
    assert pages.lost(gpu(79, engine=None)) == []


def test_gpu_with_activity_again_is_not_lost(pages):
    for text in (gpu(0), gpu(79), gpu(79, engine=None)):
        pages.lost(text)
    assert pages.lost(gpu(79)) == []
    assert pages.lost(gpu(79, engine=None)) == [], "this loss of activity has another cause"
    pages.lost(gpu(79))
    pages.lost(gpu(95))
    assert pages.lost(gpu(95, engine=None)) == [("g", None)]


def test_summary_code_may_overwrite_another_code(pages):
    for text in (gpu(0), gpu(79), gpu(154, engine=None)):
        found = pages.lost(text)
    assert found == [("g", None)]
    assert pages.lost(gpu(45, engine=None)) == [("g", None)]


def test_only_the_gpu_that_failed_is_lost(pages):
    other = gpu(0, uuid="h")
    pages.lost(gpu(0) + other)
    pages.lost(gpu(79) + other)
    assert pages.lost(gpu(79, engine=None) + gpu(0, engine=None, uuid="h")) == [("g", None)]


def test_first_code_is_a_change(pages):
    """The family is absent until a GPU of the node has an error."""
    pages.lost(gpu() + gpu(uuid="h"))
    pages.lost(gpu() + gpu(79, uuid="h"))
    assert pages.lost(gpu() + gpu(79, engine=None, uuid="h")) == [("h", None)]


def test_new_gpu_with_an_old_code_is_not_lost(pages):
    pages.lost(gpu(0))
    pages.lost(gpu(0) + gpu(79, uuid="h"))
    assert pages.lost(gpu(0) + gpu(79, engine=None, uuid="h")) == []


def test_instances_without_activity_are_lost_after_an_error_of_their_parent(pages):
    def both(xid, first=0.3, second=0.3):
        power = {"DEV_POWER_USAGE": 300}
        return gpu(xid, first, instance="1", **power) + gpu(xid, second, instance="2", **power)

    pages.lost(both(0))
    assert pages.lost(both(79)) == []
    assert pages.lost(both(79, second=None)) == [("g", "2")]
    assert pages.lost(both(79, first=None, second=None)) == [("g", "1"), ("g", "2")]
