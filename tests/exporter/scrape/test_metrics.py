"""Metrics of targets and GPUs are valid, without duplicate series, and without samples of unknown values."""

import subprocess

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter.catalog import Reader
from exporter.model import Credentials, Failure, FailureKind, Role, ScrapeResult, Target, WorkloadKey
from exporter.scrape.loop import Counters, Delays, Skipped
from exporter.scrape.metrics import ScrapeCollector
from exporter.textformat import parse

NODE = Target("http://10.0.0.1:9400/metrics", "dcgm", Role.GPUS)
OTHER_EXPORTER = Target("http://10.0.0.1:9401/metrics", "dcgm", Role.GPUS)
CHAT = Target("http://10.0.0.7:8000/metrics", "vllm", Role.PODS, WorkloadKey("ai", "chat"))

GPUS = """\
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-a",modelName="NVIDIA H100",namespace="ai",pod="chat-0"} 0.5
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",modelName="NVIDIA H100",namespace="ai",pod="chat-0"} 1024
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a",modelName="NVIDIA H100",namespace="ai",pod="chat-0"} 41
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",modelName="NVIDIA H100",namespace="ai",pod="chat-0"} 300.5
DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="GPU-b",modelName="NVIDIA H100"} 30
DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-b",modelName="NVIDIA H100"} 9223372036854775794
"""


def landed(target, page, at=1000.0):
    """Returns counters after one successful scrape of this page."""
    samples = Reader(target.kind).read(parse(page.encode()), at)
    return Counters(scrapes=1, dropped_lines=len(samples.dropped), last=ScrapeResult(target, at, 0.25, samples))


def failed(target, *kinds):
    """Returns counters after failed scrapes."""
    counters = Counters(scrapes=len(kinds))
    for kind in kinds:
        counters.failures[kind] = counters.failures.get(kind, 0) + 1
        counters.last = ScrapeResult(target, 1000.0, 3.0, Failure(kind, "detail"))
    return counters


def exposed(counters, delays=None):
    registry = CollectorRegistry()
    registry.register(ScrapeCollector(lambda: counters, delays or Delays()))
    return registry


def samples_of(counters):
    """Returns {(name, labels as a frozenset): value}. Asserts that no series occurs twice."""
    text = generate_latest(exposed(counters)).decode()
    found = [sample for family in parse_text(text) for sample in family.samples]
    keyed = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in found}
    assert len(keyed) == len(found)
    return keyed


def values(counters, name, **labels):
    """Returns the values of the series with this name and these labels."""
    return [
        value
        for (series, has), value in samples_of(counters).items()
        if series == name and labels.items() <= dict(has).items()
    ]


SEVERAL = {
    NODE: landed(NODE, GPUS),
    CHAT: failed(CHAT, FailureKind.TIMEOUT, FailureKind.TIMEOUT, FailureKind.EMPTY),
    OTHER_EXPORTER: Counters(),
}


def test_no_target_has_samples_before_the_first_scrape():
    assert {series for series, _ in samples_of({})} == {"tidegate_scrapes_late_total", "tidegate_scrapes_skipped_total"}


def test_every_family_is_valid_in_both_formats():
    registry = exposed(SEVERAL)
    text = {family.name: family for family in parse_text(generate_latest(registry).decode())}
    openmetrics = {family.name: family for family in parse_openmetrics(generate_openmetrics(registry).decode())}
    assert set(text) == set(openmetrics)
    for family in openmetrics.values():
        assert family.name.startswith("tidegate_")
        assert family.documentation.endswith(".")


def test_scrapes_are_counted_by_target_and_failures_by_reason():
    chat = {"role": "pods", "owner": "ai/chat", "target": CHAT.url}
    assert values(SEVERAL, "tidegate_scrapes_total", **chat) == [3.0]
    assert values(SEVERAL, "tidegate_scrape_failures_total", reason="timeout", **chat) == [2.0]
    assert values(SEVERAL, "tidegate_scrape_failures_total", reason="empty", **chat) == [1.0]
    assert len(values(SEVERAL, "tidegate_scrape_failures_total")) == 2
    assert values(SEVERAL, "tidegate_scrapes_total", role="gpus", owner="", target=NODE.url) == [1.0]


def test_target_is_up_if_its_last_scrape_succeeded():
    assert values(SEVERAL, "tidegate_scrape_up", target=NODE.url) == [1.0]
    assert values(SEVERAL, "tidegate_scrape_up", target=CHAT.url) == [0.0]
    assert values(SEVERAL, "tidegate_scrape_up", target=OTHER_EXPORTER.url) == []
    assert values(SEVERAL, "tidegate_scrapes_total", target=OTHER_EXPORTER.url) == [0.0]
    assert values(SEVERAL, "tidegate_scrape_duration_seconds", target=NODE.url) == [0.25]
    assert values(SEVERAL, "tidegate_scrape_duration_seconds", target=OTHER_EXPORTER.url) == []


def test_dropped_lines_are_counted():
    counters = {NODE: landed(NODE, GPUS + "what is this\n")}
    # One line that is no sample, and one with DCGM's mark for "not supported".
    assert values(counters, "tidegate_scrape_dropped_lines_total") == [2.0]


def test_gpu_is_exposed_in_si_units_with_its_attribution():
    gpu = {
        "uuid": "GPU-a", "mig_instance": "", "profile": "", "model": "NVIDIA H100", "node": "",
        "attribution": "exclusive", "namespace": "ai", "pod": "chat-0",
    }  # fmt: skip
    assert values(SEVERAL, "tidegate_gpu_engine_active_ratio", **gpu) == [0.5]
    assert values(SEVERAL, "tidegate_gpu_memory_used_bytes", **gpu) == [1024.0 * 2**20]
    assert values(SEVERAL, "tidegate_gpu_temperature_celsius", **gpu) == [41.0]
    assert values(SEVERAL, "tidegate_gpu_power_watts", **gpu) == [300.5]


def test_unknown_value_has_no_sample():
    shown = {name for (name, labels), _ in samples_of(SEVERAL).items() if ("uuid", "GPU-b") in labels}
    assert shown == {"tidegate_gpu_temperature_celsius"}
    assert values(SEVERAL, "tidegate_gpu_utilization_ratio") == []
    assert values(SEVERAL, "tidegate_gpu_memory_total_bytes") == []


def test_gpu_of_two_exporters_is_exposed_once():
    counters = {NODE: landed(NODE, GPUS), OTHER_EXPORTER: landed(OTHER_EXPORTER, GPUS.replace("0.5", "0.7"))}
    assert values(counters, "tidegate_gpu_engine_active_ratio") == [0.5]
    assert len(values(counters, "tidegate_gpu_temperature_celsius")) == 2
    mig = 'DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-a",GPU_I_PROFILE="1g.5gb",GPU_I_ID="7"} 0.5\n'
    counters = {NODE: landed(NODE, mig), OTHER_EXPORTER: landed(OTHER_EXPORTER, mig)}
    assert values(counters, "tidegate_gpu_engine_active_ratio") == [0.5]


def test_gpu_of_a_failed_scrape_is_not_exposed():
    counters = {NODE: failed(NODE, FailureKind.TIMEOUT)}
    assert not [name for name, _ in samples_of(counters) if name.startswith("tidegate_gpu")]
    # The other exporter of the same node still exposes it.
    counters[OTHER_EXPORTER] = landed(OTHER_EXPORTER, GPUS)
    assert values(counters, "tidegate_gpu_engine_active_ratio") == [0.5]


def test_mig_instances_of_one_gpu_are_distinct():
    labels = 'gpu="0",UUID="GPU-a",modelName="A100",GPU_I_PROFILE="1g.5gb"'
    page = "".join(
        f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels},GPU_I_ID="{i}",namespace="ai",pod="p-{i}"}} 0.{i}\n' for i in (7, 8)
    )
    counters = {NODE: landed(NODE, page)}
    for instance in ("7", "8"):
        found = values(
            counters, "tidegate_gpu_engine_active_ratio", uuid="GPU-a", mig_instance=instance, attribution="mig"
        )
        assert found == [float(f"0.{instance}")]


MIG_LABELS = 'gpu="0",UUID="GPU-a",modelName="A100"'


def mig_page(profile="3g.20gb", parent=""):
    """Returns a page with two instances of a GPU. parent: lines of the GPU."""
    text = ""
    for instance in (1, 2):
        labels = f'{MIG_LABELS},GPU_I_PROFILE="{profile}",GPU_I_ID="{instance}"'
        text += f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels}}} 0.25\nDCGM_FI_DEV_FB_USED{{{labels}}} 100\n"
        text += f"DCGM_FI_DEV_POWER_USAGE{{{labels}}} 116\n"
    return text + parent


def test_power_of_a_mig_gpu_is_exposed_once_for_the_parent():
    counters = {NODE: landed(NODE, mig_page())}
    assert values(counters, "tidegate_gpu_power_watts") == [116.0]
    assert values(counters, "tidegate_gpu_power_watts", uuid="GPU-a", mig_instance="") == [116.0]


def test_values_of_instances_are_not_exposed_again_for_the_parent():
    """A sum over all GPUs counts no work and no memory twice."""
    parent = f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{MIG_LABELS}}} 0.2\nDCGM_FI_DEV_FB_USED{{{MIG_LABELS}}} 900\n"
    counters = {NODE: landed(NODE, mig_page(parent=parent))}
    assert sum(values(counters, "tidegate_gpu_memory_used_bytes")) == 200.0 * 2**20
    assert values(counters, "tidegate_gpu_engine_active_ratio") == [0.25, 0.25]
    assert values(counters, "tidegate_gpu_power_watts") == [116.0]


@pytest.mark.parametrize(("profile", "top"), [("1g.5gb", 1.0), ("2g.10gb", 0.5), ("3g.20gb", 1 / 3)])
def test_instance_is_exposed_with_the_ceiling_of_its_profile(profile, top):
    counters = {NODE: landed(NODE, mig_page(profile))}
    assert values(counters, "tidegate_gpu_engine_ceiling_ratio") == [top, top]
    assert values(counters, "tidegate_gpu_engine_active_ratio") == [0.25, 0.25]


def test_whole_gpu_has_no_ceiling_and_no_number_of_pods():
    assert values(SEVERAL, "tidegate_gpu_engine_ceiling_ratio") == []
    assert values(SEVERAL, "tidegate_gpu_sharers") == []


def shared_page(*pods, labels=""):
    return "".join(
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-a",vgpu="{i}",namespace="ai",pod="{pod}"{labels}}} 90\n'
        for i, pod in enumerate(pods)
    )


def test_shared_gpu_is_exposed_with_the_number_of_its_sharers():
    counters = {NODE: landed(NODE, shared_page("a", "b", "c"))}
    assert values(counters, "tidegate_gpu_sharers", attribution="device") == [3.0]
    assert values(counters, "tidegate_gpu_utilization_ratio") == [0.9]


def test_shared_gpu_with_one_named_pod_has_no_number_of_sharers():
    assert values({NODE: landed(NODE, shared_page("a"))}, "tidegate_gpu_sharers") == []


def test_values_by_process_are_exposed_per_pod_and_the_device_once():
    page = 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a"} 90\n' + shared_page("a", "b").replace(" 90", " 45")
    counters = {NODE: landed(NODE, page)}
    assert values(counters, "tidegate_gpu_utilization_ratio", attribution="process") == [0.9]
    for pod in ("a", "b"):
        assert values(counters, "tidegate_gpu_process_utilization_ratio", namespace="ai", pod=pod) == [0.45]
    assert values(counters, "tidegate_gpu_process_memory_used_bytes") == []
    assert values(counters, "tidegate_gpu_sharers") == [2.0]


def test_only_a_lost_gpu_has_a_sample_of_lost():
    reader = Reader("dcgm")
    alive, silent = ('DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="GPU-a"} 0.5\n', "")
    for xid, engine in ((0, alive), (79, alive), (79, silent)):
        page = f'{engine}DCGM_FI_DEV_XID_ERRORS{{UUID="GPU-a"}} {xid}\nDCGM_FI_DEV_GPU_TEMP{{UUID="GPU-b"}} 30\n'
        samples = reader.read(parse(page.encode()), 1000.0)
        counters = {NODE: Counters(scrapes=1, last=ScrapeResult(NODE, 1000.0, 0.25, samples))}
        expected = [1.0] if engine is silent else []
        assert values(counters, "tidegate_gpu_lost") == expected
    assert values(counters, "tidegate_gpu_lost", uuid="GPU-a") == [1.0]


def test_last_xid_is_exposed_with_the_node_of_its_gpu():
    page = (
        'DCGM_FI_DEV_XID_ERRORS{UUID="GPU-a",Hostname="gpu-1"} 79\n'
        'DCGM_FI_DEV_XID_ERRORS{UUID="GPU-b",Hostname="gpu-1"} 0\n'
        'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-c"} 30\n'
    )
    counters = {NODE: landed(NODE, page)}
    assert values(counters, "tidegate_gpu_last_xid", uuid="GPU-a", node="gpu-1") == [79.0]
    assert values(counters, "tidegate_gpu_last_xid") == [79.0, 0.0]
    assert values(counters, "tidegate_gpu_temperature_celsius", node="") == [30.0]


def test_no_label_of_a_gpu_is_one_that_prometheus_adds():
    """Prometheus would rename it, or with honor_labels replace its target label by it."""
    counters = {NODE: landed(NODE, GPUS)}
    labels = {label for (name, labels) in samples_of(counters) if "gpu" in name for label, _ in labels}
    assert labels & {"instance", "job", "endpoint", "service", "container"} == set()


def test_shared_gpu_is_one_series_with_all_its_pods():
    page = "".join(
        f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{gpu="0",UUID="GPU-a",vgpu="{i}",namespace="{ns}",pod="p-{i}"}} 0.5\n'
        for i, ns in enumerate(["b", "a"])
    )
    counters = {NODE: landed(NODE, page)}
    (found,) = [dict(labels) for (name, labels) in samples_of(counters) if name == "tidegate_gpu_engine_active_ratio"]
    assert sorted(found["pod"].split(",")) == ["p-0", "p-1"]
    assert found["namespace"] == "a,b"
    assert found["attribution"] == "device"


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "new\nline", "esc\x1b[2J", "ümläut", "{}=,# "])
def test_labels_are_escaped(name):
    target = Target(f"http://10.0.0.7/{name}", "dcgm", Role.GPUS, WorkloadKey("ai", name))
    escaped = name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    counters = {target: landed(target, f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="GPU-a",modelName="{escaped}"}} 30\n')}
    shown = name.replace("\n", "\N{REPLACEMENT CHARACTER}").replace("\x1b", "\N{REPLACEMENT CHARACTER}")
    url = target.url.replace(name, shown)
    assert values(counters, "tidegate_scrapes_total", target=url, owner=f"ai/{shown}") == [1.0]
    assert values(counters, "tidegate_gpu_temperature_celsius", model=shown) == [30.0]


def test_one_url_with_two_credentials_is_one_series():
    """Duplicate series would make Prometheus reject the whole page."""
    again = Target(NODE.url, NODE.kind, NODE.role, access=Credentials(username="me"))
    counters = {NODE: landed(NODE, GPUS), again: failed(again, FailureKind.STATUS)}
    assert values(counters, "tidegate_scrapes_total", target=NODE.url) == [1.0]
    assert values(counters, "tidegate_scrape_up", target=NODE.url) == [1.0]


@pytest.mark.parametrize("host", ["10.0.0.7:8000", "[::1]:8000", "chat.ai.svc", "[broken"])
def test_password_in_a_url_is_not_exposed(host):
    target = Target(f"http://me:p@ssw0rd@{host}/metrics?model=m@1", "vllm", Role.PODS)
    text = generate_latest(exposed({target: failed(target, FailureKind.REFUSED)})).decode()
    assert "ssw0rd" not in text
    assert "me:" not in text
    assert "m@1" not in text
    if host != "[broken":
        assert f'target="http://{host}/metrics?model=~' in text


def test_counters_are_read_at_each_collection():
    counters = {}
    registry = exposed(counters)
    assert b"tidegate_scrapes_total{" not in generate_latest(registry)
    counters[NODE] = landed(NODE, GPUS)
    assert b"tidegate_scrapes_total{" in generate_latest(registry)


def test_samples_are_of_the_moment_of_the_collection_though_they_are_built_later():
    counters = {CHAT: failed(CHAT, FailureKind.TIMEOUT)}
    families = list(ScrapeCollector(lambda: counters, Delays()).collect())
    counters[CHAT].scrapes += 1
    counters[CHAT].failures[FailureKind.EMPTY] = 1
    counters[NODE] = landed(NODE, GPUS)
    samples = {sample.name: sample for family in families for sample in family.samples}
    assert samples["tidegate_scrapes_total"].value == 1
    assert samples["tidegate_scrape_failures_total"].labels["reason"] == "timeout"
    assert "tidegate_gpu_power_watts" not in samples


def test_late_and_skipped_scrapes_are_zero_before_any():
    delays = Delays()
    registry = exposed({}, delays)

    def counts():
        lines = generate_latest(registry).decode().splitlines()
        return [line.removeprefix("tidegate_scrapes_") for line in lines if line.startswith("tidegate_scrapes_")]

    slow, overload = 'skipped_total{reason="slow_target"}', 'skipped_total{reason="overload"}'
    assert counts() == ["late_total 0.0", f"{slow} 0.0", f"{overload} 0.0"]
    delays.late, delays.skipped[Skipped.OVERLOAD] = 2, 3
    assert counts() == ["late_total 2.0", f"{slow} 0.0", f"{overload} 3.0"]


def test_promtool_accepts_the_metrics(debian_tool):
    promtool = debian_tool("promtool", package="prometheus")
    text = generate_latest(exposed(SEVERAL))
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
