"""The chart's values as keys with dots: those that exist, and those of a file that do not."""

import yaml

from scaler.config.model import Config
from tests.docs.pages import ROOT

VALUES = yaml.safe_load((ROOT / "deploy/chart/values.yaml").read_text(encoding="utf-8"))
# Keys below these are free.
OPEN = {"dashboards.json", "podAnnotations", "podLabels", "nodeSelector"}


def is_value(key):
    if key.startswith("config."):
        return key.split(".")[1] in Config.model_fields
    if any(key == one or key.startswith(f"{one}.") for one in OPEN):
        return True
    here = VALUES
    for part in key.split("."):
        if not isinstance(here, dict) or part not in here:
            return False
        here = here[part]
    return True


def unknown_in(values, before=""):
    """The keys of a file of values that the chart does not have."""
    for key, value in values.items():
        if not is_value(before + key):
            yield before + key
        elif isinstance(value, dict) and not before.startswith("config"):
            yield from unknown_in(value, f"{before}{key}.")
