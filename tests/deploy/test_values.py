"""values.yaml, its schema and its table agree."""

import importlib.util
import json

import pytest
import yaml

from scaler.config.schema import json_schema
from tests.deploy.shared import CHART, DEPLOY, module


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("values_schema", DEPLOY / "values_schema.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def leaves(schema, path=()):
    for key, value in schema.get("properties", {}).items():
        if "properties" in value:
            yield from leaves(value, (*path, key))
        else:
            yield ".".join((*path, key))


def test_schema_is_up_to_date(script):
    committed = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert committed == script.schema(), "run python deploy/values_schema.py"


def test_table_of_values_is_up_to_date(script):
    text = (CHART / "README.md").read_text(encoding="utf-8")
    assert text == script.readme(text), "run python deploy/values_schema.py"


def test_every_value_has_a_description_and_a_type(script):
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    described = {value.key for value in script.described(text)}
    typed = set(leaves(script.VALUES))
    # `issuerRef` is described as a whole, since its keys are cert-manager's.
    issuer = {key for key in typed if key.startswith("tls.certManager.issuerRef.")}
    assert described - {"tls.certManager.issuerRef"} == typed - issuer
    assert set(yaml.safe_load(text)) == set(script.VALUES["properties"])


def test_config_has_tidegates_keys_except_listen_and_state(script):
    config = script.schema()["$defs"]["Config"]
    assert config["additionalProperties"] is False
    assert set(json_schema()["properties"]) - set(config["properties"]) == {"listen", "state"}


def test_default_values_match_the_schema(request, script):
    jsonschema = module("jsonschema", "jsonschema")
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert list(jsonschema.Draft7Validator(script.schema()).iter_errors(values)) == []
