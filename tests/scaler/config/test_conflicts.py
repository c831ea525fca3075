"""Checks errors and warnings about values that conflict with each other."""

import pytest

from scaler.config.scalars import GPU_TARGET_KINDS

_CHAT = "workloads: [{namespace: ai, name: chat, engine: vllm, pods: {dns: chat.ai.svc}, replicas: {min: 1}"
_QUEUE = 'workloads: [{namespace: ai, name: w, replicas: {min: 1}, gateway: {url: "http://g", kind: rq}'
_SAME_PAGE = "must be another target than pods: those are gone at zero and see no request"
_NO_WAKE_SOURCE = "0 without a gateway: nothing can wake it, so one replica is kept (reason no_wake_source)"
_SLOW_RISE = "is slower than smoothing.down (1m): replicas go before they come, got 2m"
_SOURCES = "must have pods, a gateway, or objectives.gpu_engine: nothing shows how busy it is"


def _gpus(*parts):
    return f"gpus: [{{{', '.join(parts)}}}]"


@pytest.mark.parametrize(("text", "expected"), [
    ("scrape: {timeout: 6s}\ngpus: [{dns: a}]",
     "1:19: scrape.timeout: must be at most the scrape interval (5s), got 6s"),
    ('listen: {grpc: "[::]:8080"}\ngpus: [{dns: a}]',
     '1:16: listen.grpc: must be another port than listen.http (0.0.0.0:8080), got "[::]:8080"'),
    # Shared GPUs.
    ("sharing: {}\ngpus: [{dns: a}]", "1:10: sharing: needs kubernetes: its nodes have the GPUs"),
    ("sharing: {}\nkubernetes: {namespaces: [ai]}",
     "1:10: sharing: needs all namespaces: pods of the others use GPUs too"),
    ("sharing: {growth: {cpu: 8}}\nkubernetes: {}",
     "1:25: sharing.growth.cpu: is no resource name of GPUs such as nvidia.com/gpu, got 8"),
    # Endpoints.
    (_gpus("port: 1"), "1:8: gpus.0: must have one of url, urls, dns, service, prometheus: it locates the targets"),
    (_gpus("dns: a", "url: http://a"),
     "1:8: gpus.0: must have only one of url, urls, dns, service, prometheus: url and dns are given"),
    (_gpus("url: http://a", "port: 9400"),
     "1:30: gpus.0.port: goes with dns, target or service: write it into url, got 9400"),
    (_gpus("urls: [http://a]", "path: /m"),
     "1:33: gpus.0.path: goes with dns, target or service: write it into urls, got /m"),
    (_gpus("urls: [http://a, http://a]"), "1:26: gpus.0.urls.1: must be another target than urls.0, got http://a"),
    (_gpus("dns: a", "kind: vllm"),
     f"1:23: gpus.0.kind: must be one of {', '.join(GPU_TARGET_KINDS)}, got vllm"),
    (_gpus("dns: a", "access: {bearer_file: t, basic: {username: u, password_file: p}}"),
     "1:49: gpus.0.access.basic: is not allowed beside bearer_file: a request carries one of them"),
    (_gpus("dns: a", "access: {tls: {ca_file: c}}"),
     "1:31: gpus.0.access.tls: is for https: the targets are scraped over http"),
    (_gpus("url: https://a", "access: {tls: {certificate_file: c}}"),
     "1:58: gpus.0.access.tls.certificate_file: needs key_file, the private key of the certificate"),
    (_gpus("url: https://a", "access: {tls: {key_file: k}}"),
     "1:50: gpus.0.access.tls.key_file: needs certificate_file, the certificate of the private key"),
    (_gpus("url: https://a", "access: {tls: {ca_file: c, insecure_skip_verify: true}}"),
     "1:74: gpus.0.access.tls.insecure_skip_verify: must not be true beside ca_file, which would not be used"),
    # Workloads.
    (_CHAT + ", smoothing: {up: 2s}}]",
     "1:117: workloads.0.smoothing.up: must be 0 or at least the scrape interval (5s), got 2s"),
    (_CHAT + ", smoothing: {down: 4s, up: 0}}]",
     "1:119: workloads.0.smoothing.down: must be 0 or at least the scrape interval (5s), got 4s"),
    (_CHAT.replace("vllm", "tgi") + ", slo: {ttft: 1s}}]",
     ("1:112: workloads.0.slo.ttft: needs an engine that exposes tokens or latencies (lmdeploy, nim, ray_vllm, sglang, "
      "tidegate, triton, trtllm, vllm): set objectives.work instead")),
    (_QUEUE.replace("rq", "envoy") + ", slo: {start_within: 5m}}]",
     ("1:119: workloads.0.slo.start_within: needs a gateway with a queue of jobs (redis_exporter, celery, rq, "
      "rabbitmq, nats, kafka)")),
    (_QUEUE + ", slo: {start_within: 5m, ttft: 1s}}]",
     "1:126: workloads.0.slo.ttft: is not allowed beside start_within: it is of a language model"),
    (_QUEUE + ", engine: vllm, pods: {dns: a}, slo: {start_within: 5m}}]",
     "1:146: workloads.0.slo.start_within: is not allowed with engine vllm: ttft and itl size it"),
    (_CHAT + ", keep_warm: 14s}]",
     "1:112: workloads.0.keep_warm: must be at least 3 scrape intervals (15s), got 14s"),
    (_CHAT + ", keep_warm_min: 5h}]",
     "1:116: workloads.0.keep_warm_min: must be at most keep_warm_max (4h), got 5h"),
    (_CHAT + ", keep_warm_max: 50s}]",
     "1:13: workloads.0.keep_warm_min: must be at most keep_warm_max (50s), got 1m (the default)"),
    (_CHAT.replace("min: 1", "min: 11") + "}]",
     "1:97: workloads.0.replicas.min: must be at most replicas.max (10), got 11"),
    (_CHAT.replace("min: 1", "max: 2, min: 3") + "}]",
     "1:105: workloads.0.replicas.min: must be at most replicas.max (2), got 3"),
    (_CHAT + "}, {namespace: ai, name: chat, engine: vllm, pods: {dns: a}, replicas: {min: 1}}]",
     "1:124: workloads.1.name: must be one workload: workloads.0 is ai/chat too, got chat"),
    ("workloads: [{namespace: ai, name: chat}]", f"1:13: workloads.0: {_SOURCES}"),
    (_CHAT.replace("engine: vllm, ", "") + "}]",
     "1:13: workloads.0.engine: must be given with pods: it determines how their metrics are read"),
    (_CHAT.replace("dns: chat.ai.svc", "dns: a, kind: sglang") + "}]",
     ("1:76: workloads.0.pods.kind: must be the engine (vllm), tidegate for `tidegate export` beside it, or "
      "left out, got sglang")),
    (_CHAT + ", gateway: {dns: a, kind: dcgm}}]", "1:125: workloads.0.gateway.kind: must see requests, got dcgm"),
    (_CHAT + ", objectives: {gpu_engine: 0.8}}]",
     ("1:126: workloads.0.objectives.gpu_engine: needs gpus, or kubernetes with dcgm_exporter: no target would "
      "show it")),
    (_CHAT + ", gateway: {dns: chat.ai.svc, port: 8000}}]",
     f"1:110: workloads.0.gateway: {_SAME_PAGE}"),
])  # fmt: skip
def test_conflicting_values_are_reported_at_the_key_to_change(check, text, expected):
    assert [line for line in check(text) if ": warning " not in line] == [f"c.yaml:{expected}"]


def test_url_without_path_equals_the_url_with_the_default_path(check):
    pods, gateway = "{url: http://a:8000}", "{url: http://a:8000/metrics, kind: vllm}"
    lines = check(f"workloads: [{{namespace: ai, name: chat, engine: vllm, pods: {pods}, gateway: {gateway}}}]")

    errors = [line for line in lines if ": warning " not in line]

    assert [line.split(": ")[1] for line in errors] == ["workloads.0.gateway"]


def test_zero_replicas_without_gateway_is_a_warning(check):
    lines = check("workloads: [{namespace: ai, name: chat, engine: vllm, pods: {dns: a}, replicas: {min: 0}}]")

    assert lines == [f"c.yaml:1:87: warning TG001: workloads.0.replicas.min: {_NO_WAKE_SOURCE}"]


def test_smoothing_slower_up_than_down_is_a_warning(check):
    lines = check(_CHAT + ", smoothing: {up: 2m}}]")

    assert lines == [f"c.yaml:1:117: warning TG085: workloads.0.smoothing.up: {_SLOW_RISE}"]


def test_bounds_of_a_fixed_keep_warm_are_a_warning(check):
    lines = check(_CHAT + ", keep_warm: 5m, keep_warm_max: 1h}]")
    because = "is not used: keep_warm is 5m, and not auto, got 1h"

    assert lines == [f"c.yaml:1:131: warning TG086: workloads.0.keep_warm_max: {because}"]


def test_checkpoint_interval_above_the_hold_is_a_warning(check):
    lines = check("state: {directory: /s, interval: 10m}\ngpus: [{dns: a}]")

    message = "is more than freshness.hold (5m): older decisions are not restored, got 10m"
    assert lines == [f"c.yaml:1:34: warning TG091: state.interval: {message}"]


def test_empty_configuration_is_a_warning(check):
    expected = "c.yaml:1:1: warning TG090: workloads: nothing is configured: no target is scraped, nothing is decided"

    assert check("tick: 2s") == [expected]


@pytest.mark.parametrize(
    "text",
    [
        _CHAT + "}]",
        _CHAT.replace("min: 1", "min: 2, max: 2") + "}]",
        _CHAT + ", keep_warm: 15s}]",
        _CHAT + ", keep_warm: auto, keep_warm_min: 5s}]",
        _CHAT + "}]\nscrape: {interval: 2m}",  # the proof of idleness overrides a shorter learned keep-warm time
        _CHAT + ", smoothing: {up: 0, down: 5s}}]",
        _CHAT + "}]\nscrape: {interval: 30s}",  # the default half-life of 5s is not reported
        _CHAT + "}]\nscrape: {interval: 1s}",  # nor is the default timeout of 3s
        _CHAT.replace(", pods: {dns: chat.ai.svc}", ", gateway: {url: http://epp:9090}") + "}]",
        _CHAT.replace(", pods: {dns: chat.ai.svc}", ", objectives: {gpu_engine: 0.8}") + "}]\ngpus: [{dns: d}]",
        _CHAT + ", gateway: {dns: chat.ai.svc, port: 9090}}]",
        "listen: {http: 127.0.0.1:0, grpc: 127.0.0.1:0}\ngpus: [{dns: a}]",
        "listen: {http: 127.0.0.1:80, grpc: 127.0.0.2:80}\ngpus: [{dns: a}]",
    ],
)
def test_compatible_values_give_no_problem(check, text):
    assert check(text) == []


def test_one_error_hides_no_other_error(check):
    text = """\
        scrape: {timeout: 6s}
        tick: fast
        tick: 1s
        gpus:
          - dns: DCGM
          - 5
        workloads:
          - namespace: ai
            name: chat
            engine: vlm
            pods: {dns: a, url: http://a}
            replicas: {min: 20}
            keep_warm: 3s
            objectives: {kv_cache: 90}
            smoothing: {up: 2s, down: x}
          - name: other
            pods: *chat
        """

    assert [line.split(": ")[0] + " " + line.split(": ")[1] for line in check(text)] == [
        "c.yaml:1:19 scrape.timeout",
        "c.yaml:2:7 tick",
        "c.yaml:3:1 tick",
        "c.yaml:5:10 gpus.0.dns",
        "c.yaml:6:5 gpus.1",
        "c.yaml:10:13 workloads.0.engine",
        "c.yaml:11:11 workloads.0.pods",
        "c.yaml:12:21 workloads.0.replicas.min",
        "c.yaml:13:16 workloads.0.keep_warm",
        "c.yaml:14:28 workloads.0.objectives.kv_cache",
        "c.yaml:15:21 workloads.0.smoothing.up",
        "c.yaml:15:31 workloads.0.smoothing.down",
        "c.yaml:16:5 workloads.1.namespace",
        "c.yaml:16:5 warning TG001",
        "c.yaml:17:11 workloads.1.pods",
    ]


def test_default_of_an_unreadable_value_is_not_checked(check):
    # 9s is above the default interval, but may be below the intended one.
    lines = check("scrape: {interval: slow, timeout: 9s}\ngpus: [{dns: a}]")

    assert [line.split(": ")[1] for line in lines] == ["scrape.interval"]
