"""What a configuration says when nothing is written, and what it hands to the rest of the daemon."""

import dataclasses

import pytest
import yaml
from pydantic import ValidationError

from exporter.catalog import KINDS
from exporter.model import Credentials, WorkloadKey
from scaler.config import Config, Endpoint, Scrape, Workload, load, parse
from scaler.config.schema import sections


def test_the_smallest_configuration_is_enough(minimal):
    (workload,) = load(minimal).workloads

    assert workload.key == WorkloadKey("ai", "chat")
    assert workload.work == KINDS["vllm"].work
    assert (workload.replicas.min, workload.replicas.max) == (0, 10)
    assert workload.pods.page_at("10.0.0.7", workload.engine) == "http://10.0.0.7:8000/metrics"


def test_the_defaults_are_those_of_the_documentation():
    config = Config()

    assert (config.scrape.interval, config.scrape.timeout, config.scrape.body_limit) == (5.0, 3.0, 8 * 2**20)
    assert (config.tick, config.fresh_for, config.freshness.hold) == (1.0, 15.0, 300.0)
    assert (str(config.listen.http), str(config.listen.grpc)) == ("0.0.0.0:8080", "0.0.0.0:6000")


def test_defaults_written_out_are_the_defaults(minimal):
    config = load(minimal)
    text = yaml.safe_dump(config.model_dump(mode="json"))

    assert parse(text, "c.yaml")[0] == config


def test_the_full_configuration_is_the_same_after_being_written(full):
    config = parse(full, "c.yaml")[0]

    assert parse(yaml.safe_dump(config.model_dump(mode="json")), "c.yaml")[0] == config


def test_the_full_configuration_has_every_key_and_no_problem(full):
    config, problems = parse(full, "c.yaml")
    written = yaml.safe_dump(yaml.safe_load(full))

    assert problems == []
    assert config.gpu_kinds == ("dcgm", "dcgm")
    assert {key for section in sections() for key in section.model_fields if f"{key}:" not in written} == set()


def test_a_default_timeout_is_never_longer_than_the_interval():
    assert [Scrape(interval=interval).timeout for interval in (1.0, 3.0, 30.0)] == [1.0, 3.0, 3.0]


def test_a_configuration_cannot_be_changed():
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
def test_a_page_without_a_path_is_where_its_kind_usually_is(endpoint, pages):
    assert endpoint.pages("vllm") == pages


def test_an_address_of_a_service_is_asked_where_the_endpoint_says():
    endpoint = Endpoint(dns="a", port=1234, path="/m", scheme="https")

    assert endpoint.page_at("fd00::7", "vllm") == "https://[fd00::7]:1234/m"
    assert Endpoint(dns="a").page_at("10.0.0.7", "sglang") == "http://10.0.0.7:30000/metrics"


def test_a_pod_asked_by_its_address_is_verified_by_the_name_of_its_service(full):
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


def test_what_a_replica_should_hold_is_the_users_word_then_the_engines_then_the_gateways():
    named = {"namespace": "ai", "name": "chat"}
    pods, gateway = Endpoint(dns="a"), Endpoint(url="http://r", kind="redis_exporter")
    workloads = [
        Workload(**named, engine="triton", pods=pods, objectives={"work": 3.0}),
        Workload(**named, engine="triton", pods=pods, gateway=gateway),
        Workload(**named, gateway=gateway),
        Workload(**named),
    ]

    assert [workload.work for workload in workloads] == [3.0, KINDS["triton"].work, KINDS["redis_exporter"].work, None]


def test_a_gateway_is_an_endpoint_picker_unless_it_says_otherwise():
    named = {"namespace": "ai", "name": "chat"}

    assert Workload(**named, gateway=Endpoint(dns="a")).gateway_kind == "epp"
    assert Workload(**named, gateway=Endpoint(dns="a", kind="vllm")).gateway_kind == "vllm"
