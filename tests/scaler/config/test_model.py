"""Checks the defaults of the configuration and the values derived from it."""

import dataclasses

import pytest
import yaml
from pydantic import ValidationError

from exporter.catalog import KINDS
from exporter.model import Credentials, WorkloadKey
from scaler.config import Config, Endpoint, Scrape, Workload, load, parse
from scaler.config.schema import sections


def test_smallest_configuration_is_valid(minimal):
    (workload,) = load(minimal).workloads

    assert workload.key == WorkloadKey("ai", "chat")
    assert workload.work == KINDS["vllm"].work
    assert (workload.replicas.min, workload.replicas.max) == (0, 10)
    assert workload.pods.page_at("10.0.0.7", workload.engine) == "http://10.0.0.7:8000/metrics"


def test_defaults_match_the_documentation():
    config = Config()

    assert (config.scrape.interval, config.scrape.timeout, config.scrape.body_limit) == (5.0, 3.0, 8 * 2**20)
    assert (config.tick, config.fresh_for, config.freshness.hold) == (1.0, 15.0, 300.0)
    assert (str(config.listen.http), str(config.listen.grpc)) == ("0.0.0.0:8080", "0.0.0.0:6000")


def test_written_defaults_equal_the_defaults(minimal):
    config = load(minimal)
    text = yaml.safe_dump(config.model_dump(mode="json"))

    assert parse(text, "c.yaml")[0] == config


def test_full_configuration_survives_a_round_trip(full):
    config = parse(full, "c.yaml")[0]

    assert parse(yaml.safe_dump(config.model_dump(mode="json")), "c.yaml")[0] == config


def test_full_configuration_has_every_key_and_no_problem(full):
    config, problems = parse(full, "c.yaml")
    written = yaml.safe_dump(yaml.safe_load(full))

    assert problems == []
    assert config.gpu_kinds == ("dcgm", "dcgm")
    assert {key for section in sections() for key in section.model_fields if f"{key}:" not in written} == set()


def test_default_timeout_never_exceeds_the_interval():
    assert [Scrape(interval=interval).timeout for interval in (1.0, 3.0, 30.0)] == [1.0, 3.0, 3.0]


def test_configuration_is_immutable():
    with pytest.raises(ValidationError, match="frozen"):
        Config().scrape.interval = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("endpoint", "pages"),
    [
        (Endpoint(url="http://a:8000"), ("http://a:8000/metrics",)),
        (Endpoint(url="http://a:8000?x=y"), ("http://a:8000/metrics?x=y",)),
        (Endpoint(url="http://a:8000/"), ("http://a:8000/",)),
        (Endpoint(url="http://a:8000/v1/metrics?x=y"), ("http://a:8000/v1/metrics?x=y",)),
        (Endpoint(urls=("http://a", "http://b/m")), ("http://a/metrics", "http://b/m")),
        (Endpoint(dns="a"), ()),
    ],
)
def test_endpoint_without_path_uses_the_default_path_of_its_kind(endpoint, pages):
    assert endpoint.pages("vllm") == pages


def test_target_of_a_dns_endpoint_has_the_port_path_and_scheme_of_the_endpoint():
    endpoint = Endpoint(dns="a", port=1234, path="/m", scheme="https")

    assert endpoint.page_at("fd00::7", "vllm") == "https://[fd00::7]:1234/m"
    assert Endpoint(dns="a").page_at("10.0.0.7", "sglang") == "http://10.0.0.7:30000/metrics"


def test_pod_scraped_by_address_is_verified_by_the_name_of_its_service(full):
    gpus = parse(full, "c.yaml")[0].gpus

    assert Endpoint(dns="chat.ai.svc.", scheme="https").admission() == Credentials(server_name="chat.ai.svc")
    assert Endpoint(url="https://a").admission() == Credentials()
    assert dataclasses.asdict(gpus[0].admission()) == {
        "bearer_file": None,
        "username": "tidegate",
        "password_file": "/etc/tidegate/dcgm/password",
        "ca_file": "/etc/tidegate/dcgm/ca.crt",
        "certificate_file": "/etc/tidegate/dcgm/tls.crt",
        "key_file": "/etc/tidegate/dcgm/tls.key",
        "server_name": "dcgm-exporter.monitoring.svc",
        "insecure_skip_verify": False,
    }


def test_work_per_replica_comes_from_the_objective_then_the_engine_then_the_gateway():
    named = {"namespace": "ai", "name": "chat"}
    pods, gateway = Endpoint(dns="a"), Endpoint(url="http://r", kind="redis_exporter")
    workloads = [
        Workload(**named, engine="triton", pods=pods, objectives={"work": 3.0}),
        Workload(**named, engine="triton", pods=pods, gateway=gateway),
        Workload(**named, gateway=gateway),
        Workload(**named),
    ]

    assert [workload.work for workload in workloads] == [3.0, KINDS["triton"].work, KINDS["redis_exporter"].work, None]


def test_gateway_is_an_endpoint_picker_by_default():
    named = {"namespace": "ai", "name": "chat"}

    assert Workload(**named, gateway=Endpoint(dns="a")).gateway_kind == "epp"
    assert Workload(**named, gateway=Endpoint(dns="a", kind="vllm")).gateway_kind == "vllm"
