"""Tests when rules report and when they do not, beyond the examples of their pages: a false warning costs trust."""

import pytest

from tests.scaler.lint.manifests import CPU, OURS, asking, deployed, hpa, scaled

_SECOND = f"---\n{deployed()}"


def behaves(way):
    return f"advanced: {{horizontalPodAutoscalerConfig: {{behavior: {{{way}}}}}}}"


@pytest.mark.parametrize(("way", "maximum", "expected"), [
    ("scaleDown: {stabilizationWindowSeconds: 60}", 9, []),
    ("scaleDown: {stabilizationWindowSeconds: 61}", 9, ["TG030"]),
    ("scaleUp: {stabilizationWindowSeconds: 1}, scaleDown: {stabilizationWindowSeconds: 0}", 9, ["TG030"]),
    ("scaleDown: {}", 9, ["TG031"]),
    # One of nine is 11 %, one of ten 10 %, which is within.
    ("scaleDown: {stabilizationWindowSeconds: 30}", 10, ["TG032"]),
    ("scaleUp: {tolerance: '0'}, scaleDown: {stabilizationWindowSeconds: 30, tolerance: 0}", 100, []),
    ("scaleUp: {tolerance: '0'}, scaleDown: {stabilizationWindowSeconds: 30}", 100, ["TG032"]),
    ("scaleUp: {tolerance: 50m}, scaleDown: {stabilizationWindowSeconds: 30, tolerance: '0.05'}", 19, []),
    ("scaleUp: {tolerance: 50m}, scaleDown: {stabilizationWindowSeconds: 30, tolerance: '0.05'}", 20, ["TG032"]),
    ("scaleUp: {selectPolicy: Disabled}, scaleDown: {stabilizationWindowSeconds: 30}", 9, ["TG033"]),
    ("scaleUp: {selectPolicy: Min}, scaleDown: {stabilizationWindowSeconds: 30}", 9, []),
])  # fmt: skip
def test_hpa_behavior_is_checked_by_its_arithmetic(way, maximum, expected, rules_of):
    assert rules_of(scaled(more=behaves(way), maximum=maximum)) == expected
    flat = hpa(OURS, behavior=f"behavior: {{{way}}}").replace("maxReplicas: 8", f"maxReplicas: {maximum}")
    assert rules_of(flat) == expected


def test_hpa_without_tidegate_may_smooth(rules_of):
    assert rules_of(hpa(CPU, behavior="behavior: {scaleUp: {stabilizationWindowSeconds: 60, selectPolicy: Min}}")) == []


@pytest.mark.parametrize(("target", "expected"), [
    ("{type: AverageValue, averageValue: '1'}", []),
    ("{type: AverageValue, averageValue: 1}", []),
    ("{type: AverageValue, averageValue: 1000m}", []),
    ("{type: AverageValue, averageValue: '5'}", ["TG034"]),
    ("{type: Value, value: '1'}", ["TG034"]),
])  # fmt: skip
def test_tidegate_metric_must_be_a_number_of_replicas(target, expected, rules_of):
    behavior = "behavior: {scaleDown: {stabilizationWindowSeconds: 30}}"
    for kind, inner in (("External", "external"), ("Object", "object")):
        metric = f"{{type: {kind}, {inner}: {{metric: {{name: tidegate-replicas}}, target: {target}}}}}"
        assert rules_of(hpa(metric, behavior=behavior)) == expected


@pytest.mark.parametrize(("polling", "cached", "expected"), [
    ("pollingInterval: 30", "true", ["TG035"]), ("pollingInterval: 15", "true", []), ("", "true", ["TG035"]),
    ("pollingInterval: 16", "true", ["TG035"]),
    ("", "false", []),
])  # fmt: skip
def test_cache_is_too_old_if_the_hpa_polls_more_often_than_keda(polling, cached, expected, rules_of):
    text = scaled(spec=polling).replace("external-push,", f"external-push, useCachedMetrics: {cached},")
    assert rules_of(text) == expected


def test_missing_maximum_is_reported_for_gpus(rules_of):
    no_maximum = asking("sum(http_requests)").replace("  maxReplicaCount: 8\n", "")
    assert rules_of(no_maximum) == []
    assert rules_of(no_maximum + _SECOND) == ["TG022"]


@pytest.mark.parametrize(("metrics", "minimum", "expected"), [
    (CPU, 0, ["TG024"]), (CPU, 1, []), (CPU, 8, []), (CPU, 9, ["TG023"]),
    ("{type: External, external: {metric: {name: q}, target: {type: Value, value: 5}}}", 0, []),
])  # fmt: skip
def test_bounds_of_an_hpa_are_checked(metrics, minimum, expected, rules_of):
    assert rules_of(hpa(metrics, minimum=minimum)) == expected


@pytest.mark.parametrize(("budget", "expected"), [
    ("minAvailable: 1", ["TG027"]), ("minAvailable: 2", ["TG027"]), ("minAvailable: 100%", ["TG027"]),
    ("minAvailable: 50%", []), ("minAvailable: 0", []), ("maxUnavailable: 1", []), ("maxUnavailable: 0", ["TG027"]),
])  # fmt: skip
def test_disruption_budget_blocks_a_workload_at_its_minimum(budget, expected, rules_of):
    text = (
        "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {namespace: ai, name: chat}\n"
        f"spec: {{{budget}, selector: {{matchLabels: {{app: chat}}}}}}\n---\n"
    )
    assert rules_of(text + deployed() + "---\n" + scaled()) == expected
    assert rules_of(text.replace("app: chat", "app: other") + deployed() + "---\n" + scaled()) == []
    assert rules_of(text + deployed()) == []
    assert rules_of(f"{text}{deployed(gpu='cpu')}---\n{hpa(CPU)}") == []  # it blocks no GPU node


def test_disruption_budget_over_several_workloads_is_not_computed(rules_of):
    text = (
        "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {namespace: ai, name: chat}\n"
        "spec: {minAvailable: 1, selector: {matchLabels: {app: chat}}}\n---\n"
    )
    other = deployed().replace("name: chat,", "name: other,")
    assert rules_of(f"{text}{deployed()}---\n{other}---\n{scaled()}") == []
    assert rules_of(
        f"{text.replace('minAvailable: 1', 'maxUnavailable: 0')}{deployed()}---\n{other}---\n{scaled()}"
    ) == ["TG027"]


def test_disruption_budget_counts_all_pods_of_a_group_of_leader_and_workers(rules_of):
    group = (
        "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {namespace: ai, name: chat}\n"
        "spec: {minAvailable: 1, selector: {matchLabels: {app: chat}}}\n---\n"
        "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {namespace: ai, name: chat}\n"
        "spec: {leaderWorkerTemplate: {size: 4, workerTemplate: {metadata: {labels: {app: chat}}, spec: {containers: "
        "[{name: w, image: w, resources: {limits: {nvidia.com/gpu: 8}}}]}}}}\n---\n"
    )
    on_group = scaled().replace("scaleTargetRef: {name: chat}", "scaleTargetRef: {kind: LeaderWorkerSet, name: chat}")
    assert rules_of(group + on_group) == []


def test_idle_count_hides_no_minimum_above_the_maximum(rules_of):
    text = asking("sum(http_requests)", minimum=9).replace("  triggers:", "  idleReplicaCount: 0\n  triggers:")
    assert rules_of(text) == ["TG023"]


@pytest.mark.parametrize(("query", "threshold", "expected"), [
    ('avg(DCGM_FI_DEV_GPU_UTIL{exported_pod=~"chat-.*"})', "70", ["TG041"]),
    ("avg(DCGM_FI_DEV_GPU_UTIL)", "0.7", ["TG041", "TG043"]),
    ("avg(DCGM_FI_DEV_GPU_UTIL) / 100", "0.7", ["TG041"]),
    ("avg(nv_gpu_utilization)", "0.7", ["TG041"]),
    ("avg(DCGM_FI_PROF_SM_ACTIVE)", "0.7", []),
    ("avg(DCGM_FI_PROF_SM_ACTIVE)", "1", []),
    ("avg(DCGM_FI_PROF_SM_ACTIVE)", "70", ["TG043"]),
    ("avg(DCGM_FI_PROF_SM_ACTIVE) * 100", "70", []),
    ("sum(DCGM_FI_PROF_SM_ACTIVE)", "5.6", []),  # of a pod's eight GPUs
    ("sum(DCGM_FI_PROF_SM_ACTIVE)", "70", ["TG043"]),
    ("avg(DCGM_FI_PROF_SM_ACTIVE) + sum(vllm:num_requests_waiting)", "70", []),  # cannot be decided
    ("avg(DCGM_FI_PROF_GR_ENGINE_ACTIVE or DCGM_FI_DEV_GPU_UTIL)", "0.7", ["TG041", "TG043"]),
    ("max(DCGM_FI_DEV_FB_USED)", "70000", ["TG042"]),
    ("avg(DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE))", "0.8", ["TG042"]),
    ("sum(container_memory_working_set_bytes)", "70000", []),
    ("sum(vllm:num_requests_waiting) or vector(0)", "5", ["TG044"]),
    ("sum(rate(vllm:request_success_total[2m]))", "5", []),
    ("sum(rate(vllm:request_success_total[2m1s]))", "5", ["TG045"]),
    ("sum(rate(vllm:request_success_total[5m]))", "5", ["TG045"]),
    ("sum(rate(http_requests_total[5m]))", "5", []),
    ("avg(vllm:gpu_cache_usage_perc)", "0.8", ["TG046"]),
    ("avg(vllm:kv_cache_usage_perc or vllm:gpu_cache_usage_perc)", "0.8", []),
    ("sum(vllm:num_requests_swapped)", "2", ["TG046"]),
    ("sum(vllm:num_requests_running) + sum(vllm:num_requests_waiting)", "16", []),
])  # fmt: skip
def test_query_is_checked_as_a_measure_of_load(query, threshold, expected, rules_of):
    assert rules_of(asking(query, threshold)) == expected


def test_memory_of_a_gpu_server_is_no_load(rules_of):
    memory = "{type: Resource, resource: {name: memory, target: {type: Utilization, averageUtilization: 80}}}"
    triggers = "triggers: [{type: memory, metricType: Utilization, metadata: {value: '80'}}]"
    spec = f"{{scaleTargetRef: {{name: chat}}, minReplicaCount: 1, maxReplicaCount: 8, {triggers}}}"
    keda = f"apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {{namespace: ai, name: chat}}\nspec: {spec}\n"
    query = asking("sum(container_memory_working_set_bytes)")
    for text in (hpa(memory), keda, query):
        assert rules_of(text) == []
        assert rules_of(text + _SECOND) == ["TG042"]


def test_utilisation_of_a_mig_slice_is_reported_once(rules_of):
    text = asking("avg(DCGM_FI_DEV_GPU_UTIL)", "70")
    assert rules_of(f"{text}---\n{deployed(gpu='nvidia.com/mig-1g.10gb')}") == ["TG040"]
    assert rules_of(f"{text}---\n{deployed()}") == ["TG041"]


@pytest.mark.parametrize(("keda", "minimum", "expected"), [
    ('activationThreshold: "50"', 0, ["TG009"]),
    ('activationThreshold: "50"', 1, []),
    ('activationThreshold: "16"', 0, []),
    ('activationThreshold: "0"', 0, []),
    ("activationThreshold: much", 0, []),
])  # fmt: skip
def test_activation_above_the_target_is_reported_only_if_zero_is_allowed(keda, minimum, expected, rules_of):
    assert rules_of(asking("sum(http_requests)", minimum=minimum, keda=keda)) == expected


def test_defaults_of_keda_and_kubernetes_apply(rules_of, lint):
    keda = asking("sum(http_requests)", keda='activationThreshold: "50"').replace("  minReplicaCount: 1\n", "")
    assert rules_of(keda) == ["TG009"]  # 0
    assert rules_of(hpa(CPU).replace("  minReplicas: 1\n", "")) == []  # 1, and not 0
    (missing, _) = lint(scaled().replace("  maxReplicaCount: 8\n", ""))  # 100 are more than ten, too
    assert missing.endswith("TG022: spec.maxReplicaCount: is 100 by default: set it to what the GPUs allow")


@pytest.mark.parametrize(("metadata", "reference", "expected"), [
    ("unsafeSsl: 'true'", "", ["TG036"]), ("tlsCertFile: /tls.crt", "", ["TG036"]), ("unsafeSsl: 'false'", "", []),
    ("unsafeSsl: 'true', enableTLS: 'true'", "", []), ("unsafeSsl: 'true', enableTLS: 'false'", "", ["TG036"]),
    ("unsafeSsl: 'true'", "authenticationRef: {name: tidegate},", []), ("enableTLS: 'true'", "", []),
])  # fmt: skip
def test_tls_setting_without_effect_is_reported(metadata, reference, expected, rules_of):
    text = scaled(f"engine: vllm, {metadata}").replace("external-push,", f"external-push, {reference}")
    assert rules_of(text) == expected


@pytest.mark.parametrize(("seconds", "expected"), [(60, []), (61, ["TG010"])])
def test_idle_time_shorter_than_a_poll_is_reported(seconds, expected, rules_of):
    text = scaled("engine: vllm, gateway: epp", minimum=0, spec=f"pollingInterval: {seconds}")
    assert rules_of(text) == expected
    assert rules_of(scaled(spec=f"pollingInterval: {seconds}")) == []


def test_other_trigger_may_keep_a_workload_awake(rules_of):
    text = asking("sum(http_requests)", minimum=0, keda='activationThreshold: "50"')
    assert rules_of(f"{text}    - {{type: cpu, metricType: Utilization, metadata: {{value: '80'}}}}\n") == []


def test_activation_is_compared_with_its_own_target(lint):
    text = asking("sum(a)", minimum=0).replace("type: prometheus", "type: kafka").replace(
        'threshold: "16"', 'lagThreshold: "5"\n        activationLagThreshold: "9"'
    )  # fmt: skip
    (line,) = lint(text)
    assert line.startswith(
        "0.yaml:14:9: error TG009: spec.triggers.0.metadata.activationLagThreshold: activates above 9"
    )


@pytest.mark.parametrize(("query", "minimum", "expected"), [
    ("sum(vllm:num_requests_waiting)", 0, ["TG011"]),
    ("sum(vllm:num_requests_waiting)", 1, []),
    ("sum(vllm:num_requests_waiting) + sum(vllm:num_requests_running)", 0, []),
    ("sum(my_queue)", 0, []),
])  # fmt: skip
def test_queue_without_running_requests_must_not_scale_to_zero(query, minimum, expected, rules_of):
    assert rules_of(asking(query, minimum=minimum)) == expected


@pytest.mark.parametrize(("parts", "expected"), [
    ({"grace": ""}, ["TG060"]),
    ({"grace": "terminationGracePeriodSeconds: 45"}, ["TG060"]),
    ({"grace": "terminationGracePeriodSeconds: 46"}, []),
    ({"args": "[--shutdown-timeout=110]"}, ["TG060"]),  # 15 + 110 > 120
    ({"args": "[--shutdown-timeout, '105']"}, []),
    ({"ends": ""}, ["TG061"]),
    ({"ends": "lifecycle: {preStop: {exec: {command: [sh, -c, sleep 80]}}}"}, []),
    ({"ends": "lifecycle: {preStop: {exec: {command: [/bin/sleep, '90']}}}"}, ["TG060"]),  # 30 s are left of 120
    ({"image": "vllm/vllm-openai:v0.18.0"}, ["TG062"]),
    ({"image": "vllm/vllm-openai:v0.17.1"}, []),  # has no such switch
    ({"image": "vllm/vllm-openai:latest"}, []),
    ({"image": "vllm/vllm-openai@sha256:0"}, []),
    ({"ready": ""}, ["TG063"]),
    ({"ready": "", "image": "registry.example.com/worker:1"}, []),  # serves no requests
    ({"ready": "", "image": "registry.example.com/server:1", "container": "ports: [{containerPort: 80}]"}, ["TG063"]),
    ({"container": "livenessProbe: {httpGet: {path: /, port: 1}}"}, ["TG064"]),
    ({"container": "livenessProbe: {httpGet: {path: /, port: 1}, initialDelaySeconds: 90}"}, []),
    ({"container": "livenessProbe: {httpGet: {path: /, port: 1}, initialDelaySeconds: 89}"}, ["TG064"]),
    ({"container": "startupProbe: {httpGet: {path: /, port: 1}, failureThreshold: 11}"}, ["TG064"]),
    ({"container": "startupProbe: {httpGet: {path: /, port: 1}, failureThreshold: 12}"}, []),
    ({"image": "nvcr.io/nvidia/tritonserver:25.08-py3", "ends": "", "grace": ""}, []),  # responds in milliseconds
    ({"image": "example.com/vllm-router:1", "ends": "", "grace": ""}, []),  # a router in front of engines
    ({"args": "[--disable-log-stats]"}, ["TG066"]),
])  # fmt: skip
def test_start_and_termination_of_pods_are_checked(parts, expected, rules_of):
    assert rules_of(f"{deployed(**parts)}---\n{scaled()}") == expected


@pytest.mark.parametrize("key", ["args", "command"])
def test_missing_option_is_reported_at_its_list(key, lint):
    command = "[python3, -m, sglang.launch_server, --model-path=m]"
    manifest = deployed(image="lmsysorg/sglang:v0.5.3", args=command).replace("args:", f"{key}:")
    (line,) = lint(manifest, scaled("engine: sglang"))
    assert line.startswith(f"0.yaml:15:11: error TG066: spec.template.spec.containers.0.{key}: has no --enable-metrics")


@pytest.mark.parametrize("parts", [
    {"image": "lmsysorg/sglang:v0.5.3", "args": "[]", "container": "command: [bash, /scripts/run.sh]"},
    {"image": "lmsysorg/sglang:v0.5.3", "args": "[--config, /etc/sglang.yaml]"},
    {"image": "ghcr.io/ggml-org/llama.cpp:server-cuda", "args": "[-m, m]",
     "container": "envFrom: [{configMapRef: {name: more}}]"},
    {"image": "vllm/vllm-openai:v0.18.0", "args": "[]", "container": "command: [/scripts/run.sh]"},
    {"image": "vllm/vllm-openai:v0.18.0", "args": "[--config=/etc/vllm.yaml]"},
])  # fmt: skip
def test_options_that_are_not_visible_are_not_reported(parts, rules_of):
    engine = "llamacpp" if "llama" in parts["image"] else "sglang" if "sglang" in parts["image"] else "vllm"
    assert rules_of(f"{deployed(**parts)}---\n{scaled(f'engine: {engine}')}") == []


def test_workload_without_gpus_is_checked_only_if_tidegate_scales_it(rules_of):
    text = deployed(ready="", ends="", grace="", gpu="cpu")
    assert rules_of(f"{text}---\n{hpa(CPU)}") == []
    assert rules_of(f"{text}---\n{scaled()}") == ["TG060", "TG061", "TG063"]


@pytest.mark.parametrize(("image", "engine", "args", "work", "expected"), [
    ("vllm/vllm-openai:v0.11.0", "vllm", "[--max-num-seqs=32]", "33", ["TG065"]),
    ("vllm/vllm-openai:v0.11.0", "vllm", "[--max-num-seqs, '32']", "32", []),
    ("vllm/vllm-openai:v0.11.0", "vllm", "[--max-num-seqs=32, --data-parallel-size=2]", "64", []),
    ("vllm/vllm-openai:v0.11.0", "vllm", "[--max-num-seqs=32, --data-parallel-size=2]", "65", ["TG065"]),
    ("vllm/vllm-openai:v0.11.0", "vllm", "['vllm serve m --max-num-seqs 8 # --max-num-seqs 99']", "9", ["TG065"]),
    ("vllm/vllm-openai:v0.11.0", "vllm", "[--max-num-seqs=8]", None, []),  # an SLO sizes it
    ("vllm/vllm-openai:v0.11.0", "vllm, slo.itl: 40ms", "[--max-num-seqs=8]", None, []),
    ("ghcr.io/huggingface/text-generation-inference:3", "tgi", "[--max-concurrent-requests=8]", None, []),
    ("vllm/vllm-openai:v0.11.0", "vllm", "[--max-num-seqs=$(SEQS)]", "99", []),
    ("lmsysorg/sglang:v0.5.3", "sglang", "[--enable-metrics, --max-running-requests=8]", "9", ["TG065"]),
    ("ghcr.io/huggingface/text-generation-inference:3", "tgi", "[--max-concurrent-requests=64]", "65", ["TG065"]),
    ("ghcr.io/ggml-org/llama.cpp:server-cuda", "llamacpp", "[--metrics, -np, '4']", "5", ["TG065"]),
    ("lmsysorg/sglang:v0.5.3", "sglang", "[--model-path=m]", "9", ["TG066"]),
    ("ghcr.io/ggml-org/llama.cpp:server-cuda", "llamacpp", "[-m, m]", "4", ["TG066"]),
])  # fmt: skip
def test_target_is_compared_with_the_capacity_of_the_engine(image, engine, args, work, expected, rules_of):
    metadata = f"engine: {engine}" + (f", objectives.work: '{work}'" if work else "")
    assert rules_of(f"{deployed(image=image, args=args)}---\n{scaled(metadata)}") == expected
    annotations = ", ".join(f"tidegate.dev/{key}" for key in metadata.split(", "))
    by_hpa = hpa(OURS, behavior="behavior: {scaleDown: {stabilizationWindowSeconds: 30}}")
    assert rules_of(f"{deployed(image=image, args=args, annotations=annotations)}---\n{by_hpa}") == expected


def test_running_requests_never_exceed_the_limit_of_the_engine(rules_of):
    text = f"---\n{deployed(args='[--max-num-seqs=32]')}"
    assert rules_of(asking("sum(vllm:num_requests_running)", "32") + text) == ["TG065"]
    assert rules_of(asking("sum(vllm:num_requests_running)", "31") + text) == []
    assert rules_of(asking("sum(vllm:num_requests_running) + sum(vllm:num_requests_waiting)", "64") + text) == []
    assert rules_of(asking("sum(vllm:num_requests_running) * 2", "40") + text) == []


@pytest.mark.parametrize(("interval", "expected"), [("30s", []), ("31s", ["TG048"]), ("1m", ["TG048"]), (None, [])])
def test_interval_of_a_monitor_is_checked_if_a_trigger_uses_it(interval, expected, rules_of):
    every = f", interval: {interval}" if interval else ""
    text = (
        "apiVersion: monitoring.coreos.com/v1\nkind: PodMonitor\nmetadata: {namespace: ai, name: NAME}\n"
        f"spec: {{selector: {{matchLabels: {{app: chat}}}}, podMetricsEndpoints: [{{port: http{every}}}]}}\n"
    )
    assert rules_of(text.replace("NAME", "vllm")) == expected
    assert rules_of(text.replace("NAME", "node")) == []
    assert rules_of(f"{text.replace('NAME', 'chat')}---\n{deployed()}---\n{scaled()}") == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("scrape_configs: [{job_name: vllm, scrape_interval: 1m}]", "1:35: warning TG048: scrape_configs.0.scrape_int"),
    ("scrape_configs: [{job_name: vllm}]", "1:18: warning TG048: scrape_configs.0.scrape_interval: is 1m by default"),
    ("global: {scrape_interval: 45s}\nscrape_configs: [{job_name: dcgm}]", "2:18: warning TG048: "),
    ("global: {scrape_interval: 45s}\nscrape_configs: [{job_name: dcgm, scrape_interval: 15s}]", None),
    ("global: {scrape_interval: 15s}\nscrape_configs: [{job_name: dcgm}]", None),
    ("scrape_configs: [{job_name: node, scrape_interval: 5m}]", None),
])  # fmt: skip
def test_prometheus_configuration_is_recognised(text, expected, lint):
    assert [line.startswith(f"0.yaml:{expected}") for line in lint(text)] == ([True] if expected else [])


def test_honor_labels_of_a_job_apply_to_its_targets(lint):
    job = "scrape_configs: [{job_name: dcgm-exporter, scrape_interval: 15s, honor_labels: true}]"
    (line,) = lint(job, asking('avg(DCGM_FI_PROF_SM_ACTIVE{exported_pod=~"chat-.*"})', "0.7"))
    assert line.startswith("1.yaml:12:9: warning TG047: spec.triggers.0.metadata.query: honorLabels is true")
    assert lint(job, asking('avg(DCGM_FI_PROF_SM_ACTIVE{pod=~"chat-.*"})', "0.7")) == []


@pytest.mark.parametrize(("policy", "expected"), [
    ("", ["TG028"]), ("updatePolicy: {updateMode: Auto}", ["TG028"]), ("updatePolicy: {updateMode: 'Off'}", []),
    ("updatePolicy: {updateMode: InPlaceOrRecreate}", []),
])  # fmt: skip
def test_eviction_of_a_gpu_server_is_reported(policy, expected, rules_of):
    vpa = (
        "apiVersion: autoscaling.k8s.io/v1\nkind: VerticalPodAutoscaler\nmetadata: {namespace: ai, name: chat}\n"
        f"spec:\n  targetRef: {{kind: Deployment, name: chat}}\n  {policy}\n"
    )
    assert rules_of(f"{vpa}---\n{deployed()}") == expected
    assert rules_of(f"{vpa}---\n{deployed(gpu='cpu')}") == []
    assert rules_of(vpa) == []


_MONITOR = """\
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {{name: dcgm-exporter}}
spec: {{selector: {{matchLabels: {{app: x}}}}, endpoints: [{{port: metrics{more}}}]}}
---
"""


@pytest.mark.parametrize(("more", "label", "expected"), [
    ("", "pod", ["TG047"]), ("", "exported_pod", []),
    (", honorLabels: true", "pod", []), (", honorLabels: true", "exported_pod", ["TG047"]),
    (", metricRelabelings: [{action: keep}]", "pod", []), ("", "Hostname", []),
])  # fmt: skip
def test_meaning_of_the_pod_label_depends_on_honor_labels(more, label, expected, rules_of):
    text = asking(f'avg(DCGM_FI_PROF_SM_ACTIVE{{{label}=~"chat-.*"}})', "0.7")
    assert rules_of(_MONITOR.format(more=more) + text) == expected
    assert rules_of(text) == []
