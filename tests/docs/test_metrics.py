"""docs/reference/metrics.md matches the collectors, and no page names a metric that does not exist."""

import re
import subprocess
import sys

import pytest
from prometheus_client import CollectorRegistry, Gauge

from docs.generate.metrics import export_families, families_of
from exporter.clock import WallClock
from scaler.config import Config
from scaler.daemon import Daemon
from tests.docs.pages import PAGES, ROOT, text_of

PAGE = ROOT / "docs/reference/metrics.md"
ROW = re.compile(r"^- `(\w+)`(?: \((histogram|info)?[^)]*\))?: (.*)$", re.MULTILINE)
ROWS = {name: (kind, text) for name, kind, text in ROW.findall(PAGE.read_text(encoding="utf-8"))}
SPOKEN = re.compile(r"\btidegate_[a-z0-9_]+[a-z0-9]\b")
# Prefixes of a page's own names; and series in which the daemon records Redis' responses.
NOT_METRICS = {"tidegate_export", "tidegate_redis_waiting", "tidegate_redis_running"}


def test_committed_reference_matches_the_collectors():
    generated = subprocess.run(
        [sys.executable, "-m", "docs.generate.metrics"], capture_output=True, check=True, cwd=ROOT
    )

    assert generated.stdout.decode() == PAGE.read_text(encoding="utf-8")


def test_metric_without_a_sample_has_a_row_with_labels():
    registry = CollectorRegistry()
    Gauge("tidegate_test", "A gauge without a sample.", ("namespace",), registry=registry)
    [section] = families_of(registry)

    assert [(family.name, family.labels) for family in section.families] == [("tidegate_test", ("namespace",))]


def test_section_names_its_part_of_the_configuration_and_its_usual_labels():
    text = PAGE.read_text(encoding="utf-8")
    sections = {section.partition("\n")[0]: section for section in text.split("\n## ")[1:]}

    assert "Only with [`state`](configuration.md#checkpoints)." in sections["Checkpoints"]
    assert "Only with [`kubernetes`](configuration.md#kubernetes)." in sections["The cluster"]
    assert "Only with" not in sections["Workloads"]
    assert "Labels, unless listed: `namespace`, `workload`." in sections["Workloads"]
    assert "- `tidegate_replicas`: " in sections["Workloads"]
    assert "- `tidegate_signal` (and `objective`): " in sections["Workloads"]
    assert "- `tidegate_board_version` (no labels): " in sections["Workloads"]
    assert "- `tidegate_keda_request_duration_seconds` (histogram; `method`, `code`): " in text


def test_type_of_every_metric_follows_from_its_row():
    daemon = families_of(Daemon(Config.model_validate({"kubernetes": {}}), WallClock()).registry)
    families = [family for section in daemon for family in section.families if section.title != "The process"]
    by_row = {name: kind or ("counter" if name.endswith("_total") else "gauge") for name, (kind, _) in ROWS.items()}

    assert len(families) > 50
    assert {family.name: family.type for family in (*families, *export_families())}.items() <= by_row.items()


def test_every_name_in_the_code_is_on_the_page():
    code = "\n".join(path.read_text() for room in ("exporter", "scaler") for path in (ROOT / room).rglob("*.py"))
    named = set(re.findall(r"[\"'](tidegate_[a-z0-9_]*[a-z0-9])[\"']", code)) - NOT_METRICS

    assert named
    assert [name for name in named if not {name, f"{name}_total", f"{name}_info"} & set(ROWS)] == []


def test_every_metric_has_a_sentence_as_help():
    tidegate_rows = {name: text for name, (_, text) in ROWS.items() if name.startswith("tidegate_")}

    assert [name for name, text in tidegate_rows.items() if not text.endswith(".") or len(text.split()) < 2] == []


def test_every_family_of_the_export_is_documented_with_its_labels():
    families = {family.name: family for family in export_families()}

    assert [name for name in families if name not in ROWS] == []
    assert families["tidegate_export_gpu_pod_info"].labels == ("uuid", "mig_instance", "pod_namespace", "pod_name")


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_page_names_existing_metrics_only(page):
    existing = set(ROWS) | NOT_METRICS
    existing |= {f"{name}_{part}" for name, (kind, _) in ROWS.items() if kind == "histogram"
              for part in ("bucket", "count", "sum")}  # fmt: skip

    assert sorted(set(SPOKEN.findall(text_of(page))) - existing) == []
