"""A series is assigned to its target, and the labels that Prometheus added are removed."""

import pytest

from exporter.model import PodKey, Role
from exporter.sources.promql.decode import PromqlSeries
from exporter.sources.promql.pages import SeriesOrigin, group_by_origin, jobs_of

GPU = "DCGM_FI_DEV_GPU_UTIL"
WAITING = "vllm:num_requests_waiting"
EXPORTER = {"job": "dcgm", "instance": "10.0.0.9:9400", "namespace": "gpu", "pod": "exporter-x", "container": "e"}
ENGINE = {"job": "engines", "instance": "10.0.0.1:8000", "namespace": "ai", "pod": "chat-0", "container": "vllm"}
HOLDER = {"exported_namespace": "ai", "exported_pod": "chat-0", "exported_container": "c"}
PLAIN = b'{UUID="1",container="c",namespace="ai",pod="chat-0"}'


def series(name, labels, **more):
    return PromqlSeries(name, {**labels, **more}, (1.0, 2.0), (1.0, 1.0))


def pages(found, role):
    """Returns origin -> the heads of the lines of all its scrapes."""
    groups = group_by_origin(found, role, jobs_of(found))
    return {source: [one.series for scrape in scrapes for one in scrape.lines] for source, scrapes in groups.items()}


def gpu_page(*found):
    ((source, heads),) = pages(found, Role.GPUS).items()
    assert source == SeriesOrigin(None, EXPORTER["instance"])
    return [head.removeprefix(GPU.encode()) for head in heads]


def test_exported_labels_get_their_names_back_and_target_labels_are_removed():
    assert gpu_page(series("up", EXPORTER), series(GPU, EXPORTER, UUID="1", **HOLDER)) == [PLAIN]


def test_idle_gpu_is_not_attributed_to_the_exporters_pod():
    free, held = series(GPU, EXPORTER, UUID="2"), series(GPU, EXPORTER, UUID="1", **HOLDER)
    assert gpu_page(series("up", EXPORTER), free) == [b'{UUID="2"}']
    assert gpu_page(series("up", EXPORTER), free, held) == [PLAIN, b'{UUID="2"}']
    assert gpu_page(free, held) == [PLAIN, b'{UUID="2"}']


def test_honored_labels_are_kept_even_if_they_equal_target_labels():
    target = {**EXPORTER, "namespace": "ai"}  # the exporter runs in the namespace of the workload
    holder = {"namespace": "ai", "pod": "chat-0", "container": "c"}
    assert gpu_page(series("up", target), series(GPU, {**target, **holder}, UUID="1")) == [PLAIN]
    assert gpu_page(series("up", target), series(GPU, target, UUID="1")) == [b'{UUID="1"}']
    assert gpu_page(series(GPU, {**target, **holder}, UUID="1")) == [PLAIN]


def test_target_labels_are_not_on_the_page():
    target = {**ENGINE, "node": "n", "app_kubernetes_io_name": "vllm", "model_name": "of-the-target"}
    found = [series("up", target), series(WAITING, target, exported_model_name="m", engine="0")]
    expected = b'vllm:num_requests_waiting{engine="0",model_name="m"}'
    assert pages(found, Role.PODS) == {SeriesOrigin(PodKey("ai", "chat-0"), ""): [expected]}


def test_pods_are_distinguished_by_name_and_gateways_by_address():
    other = {**ENGINE, "instance": "10.0.0.2:8000", "pod": "chat-1"}
    found = [series("up", ENGINE), series(WAITING, ENGINE), series("up", other), series(WAITING, other)]
    assert list(pages(found, Role.PODS)) == [
        SeriesOrigin(PodKey("ai", "chat-0"), ""),
        SeriesOrigin(PodKey("ai", "chat-1"), ""),
    ]
    assert list(pages(found, Role.GATEWAY)) == [
        SeriesOrigin(None, "10.0.0.1:8000"),
        SeriesOrigin(None, "10.0.0.2:8000"),
    ]


@pytest.mark.parametrize(
    ("labels", "source"),
    [
        ({"namespace": "ai", "pod": "chat-0"}, SeriesOrigin(PodKey("ai", "chat-0"), "")),
        ({"kubernetes_namespace": "ai", "kubernetes_pod_name": "chat-0"}, SeriesOrigin(PodKey("ai", "chat-0"), "")),
        ({"pod": "chat-0"}, SeriesOrigin(PodKey("", "chat-0"), "")),
        ({"instance": "10.0.0.1:8000"}, SeriesOrigin(None, "10.0.0.1:8000")),
        (
            {"pod": "sidecar", "exported_namespace": "ai", "exported_pod": "chat-0"},
            SeriesOrigin(PodKey("ai", "chat-0"), ""),
        ),
        ({}, SeriesOrigin(None, "")),
    ],
)
def test_pod_is_read_from_any_of_its_labels_with_or_without_up(labels, source):
    assert list(pages([series(WAITING, labels)], Role.PODS)) == [source]
    assert list(pages([series(WAITING, labels), series("up", labels)], Role.PODS)) == [source]


def test_page_of_a_pod_has_both_of_its_servers():
    second = {**ENGINE, "instance": "10.0.0.1:8001"}
    found = [series("up", ENGINE), series(WAITING, ENGINE), series("up", second), series(WAITING, second)]
    ((_, heads),) = pages(found, Role.PODS).items()
    assert heads == [b'vllm:num_requests_waiting{instance="10.0.0.1:8000"}',
                     b'vllm:num_requests_waiting{instance="10.0.0.1:8001"}']  # fmt: skip


def test_scrapes_of_two_prometheus_replicas_are_separate():
    a, b = {**ENGINE, "prometheus_replica": "a"}, {**ENGINE, "prometheus_replica": "b"}
    for ups in ([series("up", a), series("up", b)], []):
        found = [*ups, series(WAITING, a), series(WAITING, b), series("vllm:num_requests_running", b)]
        ((_, scrapes),) = group_by_origin(found, Role.PODS, {"engines"}).items()
        assert sorted(len(scrape.lines) for scrape in scrapes) == [1, 2]
        assert all(b"prometheus_replica" not in one.series for scrape in scrapes for one in scrape.lines)


def test_new_pod_with_an_old_address_has_separate_series():
    new = {**ENGINE, "pod": "chat-1"}
    found = [series("up", ENGINE), series(WAITING, ENGINE), series("up", new), series(WAITING, new)]
    assert [len(heads) for heads in pages(found, Role.PODS).values()] == [1, 1]


def test_target_without_our_series_counts_only_if_its_job_has_some():
    silent, proxy = {**ENGINE, "pod": "chat-1", "instance": "b"}, {**ENGINE, "job": "proxies", "pod": "envoy-0"}
    found = [series("up", ENGINE), series(WAITING, ENGINE), series("up", silent), series("up", proxy)]
    assert [source.pod.pod for source in pages(found, Role.PODS)] == ["chat-0", "chat-1"]
    assert [source.pod.pod for source in group_by_origin(found[2:], Role.PODS, {"engines"})] == ["chat-1"]
