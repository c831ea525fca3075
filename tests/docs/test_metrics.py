"""docs/reference/metrics.md is what the collectors say, and no page speaks of a metric that there is not."""

import re
import subprocess
import sys

import pytest
from prometheus_client import CollectorRegistry, Gauge

from docs.generate.metrics import export_families, families_of
from tests.docs.pages import PAGES, ROOT, text_of

PAGE = ROOT / "docs/reference/metrics.md"
ROW = re.compile(r"^- `(\w+)` \((\w+)(?:; [^)]*)?\): (.*)$", re.MULTILINE)
ROWS = {name: (kind, text) for name, kind, text in ROW.findall(PAGE.read_text(encoding="utf-8"))}
SPOKEN = re.compile(r"\btidegate_[a-z0-9_]+[a-z0-9]\b")
# The beginning of a page's own names; and series by which the daemon tells itself what Redis said.
NOT_METRICS = {"tidegate_export", "tidegate_redis_waiting", "tidegate_redis_running"}


def test_the_committed_reference_is_what_the_collectors_say():
    made = subprocess.run([sys.executable, "-m", "docs.generate.metrics"], capture_output=True, check=True, cwd=ROOT)

    assert made.stdout.decode() == PAGE.read_text(encoding="utf-8")


def test_a_metric_without_a_sample_has_its_row_and_its_labels():
    registry = CollectorRegistry()
    Gauge("tidegate_test", "A gauge without a sample.", ("namespace",), registry=registry)
    [section] = families_of(registry)

    assert [(family.name, family.labels) for family in section.families] == [("tidegate_test", ("namespace",))]


def test_a_section_names_the_part_of_the_configuration_that_it_needs_and_its_usual_labels():
    text = PAGE.read_text(encoding="utf-8")
    sections = {section.partition("\n")[0]: section for section in text.split("\n## ")[1:]}

    assert "Only with [`state`](configuration.md#checkpoints)." in sections["Checkpoints"]
    assert "Only with [`kubernetes`](configuration.md#kubernetes)." in sections["The cluster"]
    assert "Only with" not in sections["Workloads"]
    assert "Labels, unless listed: `namespace`, `workload`." in sections["Workloads"]
    assert "- `tidegate_replicas` (gauge): " in sections["Workloads"]
    assert "- `tidegate_signal` (gauge; and `objective`): " in sections["Workloads"]
    assert "- `tidegate_board_version` (gauge; no labels): " in sections["Workloads"]


def test_every_name_in_the_code_is_on_the_page():
    code = "\n".join(path.read_text() for room in ("exporter", "scaler") for path in (ROOT / room).rglob("*.py"))
    named = set(re.findall(r"[\"'](tidegate_[a-z0-9_]*[a-z0-9])[\"']", code)) - NOT_METRICS

    assert named
    assert [name for name in named if not {name, f"{name}_total", f"{name}_info"} & set(ROWS)] == []


def test_every_metric_says_what_it_is_in_a_sentence():
    ours = {name: text for name, (_, text) in ROWS.items() if name.startswith("tidegate_")}

    assert [name for name, text in ours.items() if not text.endswith(".") or len(text.split()) < 2] == []


def test_every_family_of_the_export_page_is_shown_with_its_labels():
    families = {family.name: family for family in export_families()}

    assert [name for name in families if name not in ROWS] == []
    assert families["tidegate_export_gpu_pod_info"].labels == ("uuid", "mig_instance", "pod_namespace", "pod_name")


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_speaks_of_metrics_that_there_are(page):
    known = set(ROWS) | NOT_METRICS
    known |= {f"{name}_{part}" for name, (kind, _) in ROWS.items() if kind == "histogram"
              for part in ("bucket", "count", "sum")}  # fmt: skip

    assert sorted(set(SPOKEN.findall(text_of(page))) - known) == []
