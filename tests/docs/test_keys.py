"""Every key with a dot in a sentence exists in the configuration, in a trigger, or in the chart."""

import re

import yaml

from scaler.config.agent import ExportConfig
from scaler.config.model import Config
from scaler.config.pydantic_errors import sections_in
from scaler.config.trigger import TRIGGER_KEYS
from scaler.config.workload import Workload
from scaler.model import Evidence
from tests.docs.pages import PAGES, ROOT, in_backticks

KEY = re.compile(r"^[a-z_]+(?:\.[a-z_A-Z0-9]+)+$")
VALUES = yaml.safe_load((ROOT / "deploy/chart/values.yaml").read_text(encoding="utf-8"))
# Text that resembles a key but is something else: hosts, modules, files.
NO_KEYS = re.compile(
    r"\.(?:io|sh|md|py|com|yaml|json|state|svc|svg|tidegate|demo|ai|gz|txt|org|csv|crt|key)$|^state\.py"
)


def of_section(section):
    """Every key below a section of the model, with dots; the keys of a list's items count as its own."""
    for name, field in section.model_fields.items():
        yield name
        for inner in sections_in(field.annotation):
            yield from (f"{name}.{key}" for key in of_section(inner))


def of_values(values):
    for key, value in values.items():
        yield key
        if isinstance(value, dict):
            yield from (f"{key}.{inner}" for inner in of_values(value))


KEYS = {*of_section(Config), *of_section(Workload), *of_section(ExportConfig), *TRIGGER_KEYS, *of_values(VALUES)}
KEYS |= {f"evidence.{name}" for name in Evidence.__dataclass_fields__}
ROOTS = {key.partition(".")[0] for key in KEYS if "." in key}
NAMED = [
    (page, text)
    for page in PAGES
    for text in dict.fromkeys(in_backticks(page))
    if KEY.match(text) and text.partition(".")[0] in ROOTS and not NO_KEYS.search(text)
]


def test_every_key_in_a_sentence_exists():
    # Keys below the chart's `config` are Tidegate's; below lists an index is allowed.
    assert [each for each in NAMED if re.sub(r"\.\d+", "", each[1].removeprefix("config.")) not in KEYS] == []


def test_keys_are_found():
    assert len(NAMED) > 40
    assert {"freshness.hold", "objectives.work", "tls.type", "evidence.wake_source"} <= KEYS
