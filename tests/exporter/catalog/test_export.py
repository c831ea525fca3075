"""Exported samples are read back complete, without additions, and with their age."""

import math
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from exporter.agent.page import NormalisedCollector, SourceState
from exporter.catalog import Reader
from exporter.catalog.export import GPU_FAMILIES, QUEUE_FAMILIES, SourcesDown
from exporter.model import Attribution, Gpu, PodKey, Quantity, Queue, Samples
from exporter.textformat import parse

Q = Quantity
NOW = datetime(2026, 11, 21, tzinfo=UTC).timestamp()
CHAT, SUMMARY = PodKey("ai", "chat-0"), PodKey("ml", "summary-0")
RATIOS = {
    Q.KV_CACHE_USED,
    Q.ENGINE_AWAKE,
    Q.GPU_LOST,
    *(q for q, f in GPU_FAMILIES.items() if f.name.endswith("_ratio")),
}
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
PODS = st.lists(st.builds(PodKey, TEXT, TEXT), max_size=3, unique=True).map(sorted).map(tuple)
GPU = st.builds(
    Gpu,
    uuid=TEXT,
    instance=st.none() | TEXT,
    profile=st.none() | TEXT,
    model=st.none() | TEXT,
    attribution=st.sampled_from(Attribution),
    pods=PODS,
    implied=st.booleans(),
    node=st.none() | TEXT,
)


def printed(*states, now=NOW, generate=generate_latest):
    return generate(NormalisedCollector(states, now))


def read(page, at=NOW):
    return Reader("auto").read(parse(page), at)


def table(samples):
    """Returns {subject: ({quantity: value}, at)} of the known values."""
    return {
        subject: ({q: v for q, v in zip(samples.quantities, row, strict=True) if not math.isnan(v)}, at)
        for subject, row, at in zip(samples.subjects, samples.values.tolist(), samples.at.tolist(), strict=True)
    }


def samples(rows, kind="vllm"):
    """Returns Samples of {subject: ({quantity: value}, at)}."""
    quantities = tuple(dict.fromkeys(quantity for values, _ in rows.values() for quantity in values))
    return Samples(
        kind,
        tuple(rows),
        quantities,
        np.array([[values.get(q, np.nan) for q in quantities] for values, _ in rows.values()]).reshape(
            len(rows), len(quantities)
        ),
        np.array([at for _, at in rows.values()], dtype=float),
    )


def identity(subject):
    return (subject.name,) if isinstance(subject, Queue) else (subject.uuid, subject.instance)


@st.composite
def samples_of_a_source(draw):
    subjects = draw(st.lists(st.builds(Queue, TEXT) | GPU, max_size=6, unique_by=identity))
    rows = {}
    for subject in subjects:
        families = QUEUE_FAMILIES if isinstance(subject, Queue) else GPU_FAMILIES
        values = draw(st.dictionaries(st.sampled_from(list(families)), st.floats(0, 1)))
        whole = {q: v if q in RATIOS else math.floor(v * 200) for q, v in values.items()}
        rows[subject] = (whole, NOW - draw(st.integers(0, 100_000_000)) / 1000)
    return samples(rows)


@settings(max_examples=200)
@given(samples_of_a_source(), st.sampled_from([generate_latest, generate_openmetrics]))
def test_exported_values_are_read_back(exposed, generate):
    again = read(printed(SourceState("s", exposed, up=True), generate=generate))
    assert {subject: values for subject, (values, _) in table(again).items()} == {
        subject: values for subject, (values, _) in table(exposed).items()
    }
    assert dict(zip(again.subjects, again.at, strict=True)) == pytest.approx(
        dict(zip(exposed.subjects, exposed.at, strict=True)), abs=0.001
    )
    assert again.kind == "tidegate"
    assert again.dropped == ()


def test_every_quantity_has_one_family():
    assert set(Quantity) == QUEUE_FAMILIES.keys() | GPU_FAMILIES.keys()
    names = [family.name for families in (QUEUE_FAMILIES, GPU_FAMILIES) for family in families.values()]
    assert len(set(names)) == len(names) == len(Quantity)


def test_value_keeps_its_age_in_another_scrape():
    exposed = samples({Queue("m"): ({Q.REQUESTS_WAITING: 3.0}, NOW - 2.0)})
    page = printed(SourceState("s", exposed, up=True), now=NOW + 20.0)
    # Received 21 s later by a machine whose clock is an hour ahead: the age of 22 s counts from its receipt.
    assert read(page, NOW + 3621.0).at.tolist() == [NOW + 3599.0]


def test_export_of_an_export_is_as_old_as_both():
    exposed = samples({Queue("m"): ({Q.REQUESTS_WAITING: 3.0}, NOW - 2.0)})
    first = read(printed(SourceState("s", exposed, up=True)), NOW)
    second = read(printed(SourceState("t", first, up=True), now=NOW + 5.0), NOW + 5.0)
    assert table(second) == {Queue("m"): ({Q.REQUESTS_WAITING: 3.0}, NOW - 2.0)}


def test_failed_source_has_no_values_and_keeps_its_ages():
    engine = samples({Queue("m"): ({Q.REQUESTS_WAITING: 3.0}, NOW)})
    gpu = Gpu("GPU-1", attribution=Attribution.EXCLUSIVE, pods=(CHAT,))
    gpus = samples({gpu: ({Q.GPU_ENGINE_ACTIVE: 0.5}, NOW)}, "dcgm")
    page = printed(SourceState("s", engine, up=True), SourceState("t", gpus, up=False), now=NOW + 60.0)
    assert b'tidegate_export_source_up{source="t"} 0.0\n' in page
    assert b"tidegate_export_gpu_engine_active_ratio" not in page
    assert table(read(page, NOW + 60.0)) == {Queue("m"): ({Q.REQUESTS_WAITING: 3.0}, NOW), gpu: ({}, NOW)}


@pytest.mark.parametrize("exposed", [None, samples({Queue("m"): ({Q.REQUESTS_WAITING: 3.0}, NOW)})])
def test_response_with_only_failed_sources_is_no_empty_response(exposed):
    with pytest.raises(SourcesDown, match="source_up is 0 for every source"):
        read(printed(SourceState("s", exposed, up=False)))


def test_queue_of_two_sources_is_known_only_if_both_are_up():
    both = [
        samples({Queue("m"): ({Q.REQUESTS_WAITING: waiting}, NOW - age)}) for waiting, age in ((3.0, 1.0), (4.0, 9.0))
    ]
    page = printed(SourceState("a", both[0], up=True), SourceState("b", both[1], up=True))
    assert table(read(page)) == {Queue("m"): ({Q.REQUESTS_WAITING: 7.0}, NOW - 9.0)}
    page = printed(SourceState("a", both[0], up=True), SourceState("b", both[1], up=False))
    assert b'waiting{queue="m",source="a"}' in page
    assert b'waiting{queue="m",source="b"}' not in page
    assert table(read(page)) == {Queue("m"): ({}, NOW - 9.0)}


def test_gpu_of_two_sources_has_the_values_of_the_first_working_one():
    gpu = Gpu("GPU-1")
    both = [samples({gpu: ({Q.GPU_POWER: watts}, NOW)}, "dcgm") for watts in (100.0, 200.0)]
    for up, expected in (((True, True), 100.0), ((False, True), 200.0)):
        page = printed(
            *(SourceState(str(n), exposed, up=is_up) for n, (exposed, is_up) in enumerate(zip(both, up, strict=True)))
        )
        assert table(read(page)) == {gpu: ({Q.GPU_POWER: expected}, NOW)}


def test_value_without_an_age_is_unknown():
    exposed = samples({Queue("m"): ({Q.REQUESTS_WAITING: 3.0}, NOW), Gpu("GPU-1"): ({Q.GPU_POWER: 100.0}, NOW)})
    page = printed(SourceState("s", exposed, up=True))
    for age in (b"NaN", b"-1.0", b"1e+300"):
        bad = page.replace(b'_age_seconds{queue="m",source="s"} 0.0', b'_age_seconds{queue="m",source="s"} ' + age)
        assert bad != page
        assert table(read(bad))[Queue("m")] == ({}, NOW)
    without = b"\n".join(line for line in page.split(b"\n") if b"gpu_age_seconds" not in line)
    assert table(read(without))[Gpu("GPU-1")] == ({}, NOW)


@pytest.mark.parametrize("lost", [b"gpu_info", b'pod_name="summary-0"'])
def test_gpu_without_all_its_sharers_is_exclusive_to_none(lost):
    gpu = Gpu("GPU-1", attribution=Attribution.PROCESS, pods=(CHAT, SUMMARY))
    page = printed(SourceState("s", samples({gpu: ({Q.GPU_UTILIZATION: 0.5}, NOW)}, "dcgm"), up=True))
    assert read(page).subjects == (gpu,)
    (left,) = read(b"\n".join(line for line in page.split(b"\n") if lost not in line or line.startswith(b"#"))).subjects
    assert (left.uuid, left.attribution) == ("GPU-1", Attribution.DEVICE)


def test_attribution_of_a_later_version_is_read_as_device():
    gpu = Gpu("GPU-1", attribution=Attribution.EXCLUSIVE, pods=(CHAT,))
    page = printed(SourceState("s", samples({gpu: ({Q.GPU_POWER: 1.0}, NOW)}, "dcgm"), up=True))
    (read_as,) = read(page.replace(b'attribution="exclusive"', b'attribution="quantum"')).subjects
    assert read_as.attribution is Attribution.DEVICE


def test_page_is_an_export_whatever_the_engine_is_called():
    exposed = samples({Queue("vllm:num_requests_waiting"): ({Q.REQUESTS_WAITING: 3.0}, NOW)})
    assert read(printed(SourceState("s", exposed, up=True))).kind == "tidegate"
