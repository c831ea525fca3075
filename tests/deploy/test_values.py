"""values.yaml, its schema and its table say the same."""

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
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def leaves(schema, path=()):
    for key, value in schema.get("properties", {}).items():
        if "properties" in value:
            yield from leaves(value, (*path, key))
        else:
            yield ".".join((*path, key))


def test_the_schema_is_made_of_the_model_as_it_is_now(script):
    committed = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert committed == script.schema(), "run python deploy/values_schema.py"


def test_the_table_is_made_of_the_values_as_they_are_now(script):
    text = (CHART / "README.md").read_text(encoding="utf-8")
    assert text == script.readme(text), "run python deploy/values_schema.py"


def test_every_value_is_described_and_typed(script):
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    described = {value.key for value in script.described(text)}
    typed = set(leaves(script.VALUES))
    # `issuerRef` is described as a whole, as cert-manager's own words.
    issuer = {key for key in typed if key.startswith("tls.certManager.issuerRef.")}
    assert described - {"tls.certManager.issuerRef"} == typed - issuer
    assert set(yaml.safe_load(text)) == set(script.VALUES["properties"])


def test_the_charts_config_is_tidegates_but_for_where_it_listens_and_what_it_keeps(script):
    config = script.schema()["$defs"]["Config"]
    assert config["additionalProperties"] is False
    assert set(json_schema()["properties"]) - set(config["properties"]) == {"listen", "state"}


def test_the_default_values_pass_their_own_schema(request, script):
    jsonschema = module("jsonschema", "jsonschema")
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert list(jsonschema.Draft7Validator(script.schema()).iter_errors(values)) == []
