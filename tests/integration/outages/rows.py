"""The tests of each row of the tables in docs/explanation/outages.md, by heading and by first cell."""

TESTS = {
    "KEDA's fallback": {
        "none": ("test_silent_pod_is_held_and_then_an_error_which_scales_nothing_without_a_fallback",),
        "`replicas: 6`": (
            "test_start_without_an_api_server_responds_with_errors_which_wake_workloads_with_a_fallback",
            "test_fallback_does_not_engage_while_the_scaler_is_down",
        ),
        "`replicas: 0`": ("test_fallback_of_zero_replicas_lets_an_error_scale_to_zero",),
    },
    "Sources": {
        "the only pod: refused, no answer, HTTP error, or no queue series": (
            "test_silent_pod_is_held_and_then_an_error_which_scales_nothing_without_a_fallback",
        ),
        "up to half of the ready pods": (
            "test_lost_node_scales_nothing_down_and_its_pods_are_imputed_and_then_replaced",
        ),
        "more than half of them": ("test_two_silent_pods_of_three_are_held_and_then_an_error",),
        "one series: missing, invalid, repeated or unparsable; a Redis key of the wrong type": (
            "test_unreadable_queue_never_ends_at_zero",
            "test_key_of_a_wrong_type_neither_wakes_nor_scales_down_and_is_reported",
        ),
        "one GPU: missing, unparsable or without pod label": ("test_unreadable_busy_gpu_never_ends_at_zero",),
        "the gateway": ("test_silent_gateway_is_held_and_then_an_error_and_wakes_no_sleeping_workload",),
        "dcgm-exporter, sized by requests": (
            "test_restarted_dcgm_exporter_never_reads_as_idle",
            "test_replacement_of_a_dcgm_exporter_pod_puts_no_workload_to_sleep",
        ),
        "dcgm-exporter, sized by GPUs": (
            "test_workload_sized_by_gpus_is_held_and_then_an_error_without_dcgm_exporter",
        ),
        "Prometheus fails or returns nothing; Redis hangs, refuses, loads, or lost its master": (
            "test_silent_prometheus_is_held_and_then_an_error_and_wakes_no_sleeping_workload",
            "test_silent_redis_is_held_and_then_an_error_and_wakes_no_sleeping_workload",
        ),
        "DNS for `dns` targets: failure": (
            "test_failing_name_server_is_held_and_then_an_error_and_a_sleeping_workload_can_be_woken",
        ),
        "DNS: no such name, or no address (without Kubernetes)": (
            "test_name_without_addresses_is_no_error_and_never_puts_to_sleep",
        ),
    },
    "The Kubernetes API server": {
        "it refuses connections, restarts, or never answers; 401 or 403: a Role is missing": (
            "test_unreachable_api_server_changes_no_decision_and_decisions_follow_after_its_return",
            "test_silent_api_server_is_held_and_then_an_error_and_sleeping_workloads_can_be_woken",
            "test_hanging_api_server_changes_no_decision",
            "test_api_server_that_denies_access_counts_as_silent",
        ),
        "… workload found at zero": ("test_workload_stays_at_zero_while_the_api_server_is_away",),
        "one of `kubernetes.namespaces` refuses, or is deleted": (
            "test_namespace_that_refuses_costs_only_its_own_workloads",
        ),
        "410 Gone": ("test_resources_are_listed_again_after_410_gone",),
        "a ScaledObject is created meanwhile": ("test_hanging_api_server_changes_no_decision",),
        "Tidegate starts meanwhile, with or without `state`": (
            "test_start_without_an_api_server_responds_with_errors_which_wake_workloads_with_a_fallback",
        ),
    },
    "Tidegate": {
        "it is killed or unreachable": (
            "test_killed_tidegate_never_triggers_a_fallback_and_the_next_one_decides_as_before",
        ),
        "it starts without a checkpoint": (
            "test_killed_tidegate_never_triggers_a_fallback_and_the_next_one_decides_as_before",
            "test_without_a_directory_no_state_survives",
        ),
        "it restarts with `state`, sources are down": (
            "test_restart_in_a_burst_changes_nothing_while_the_sources_fail",
            "test_restart_at_zero_wakes_no_workload_and_the_next_request_does",
        ),
        "it restarts during keep-warm": (
            "test_keep_warm_continues_after_a_restart_unless_a_request_finished_meanwhile",
        ),
        "the newest checkpoint is torn": ("test_unreadable_checkpoint_is_logged_and_the_previous_one_is_read",),
        "its disk is full, read-only or hangs": (
            "test_unwritable_directory_costs_only_the_checkpoints",
            "test_hanging_disk_does_not_block_the_shutdown",
        ),
        "it is frozen: swapping node, paused container": (
            "test_frozen_tidegate_does_not_respond_and_thawed_it_decides_as_before",
        ),
        "its gRPC server hangs (bug)": ("test_livez_fails_while_ticks_go_on_when_grpc_does_not_answer",),
        "it drains (SIGTERM)": ("test_sigterm_ends_streams_with_ok_so_that_keda_comes_back_soon",),
        "its ticks fail (bug)": (
            "test_every_decision_is_an_error_after_the_hold_until_ticks_recover",
            "test_giving_up_keeps_a_sleeping_workload_asleep_for_kedas_fallback",
        ),
        "a response triggers a bug": (
            "test_response_that_cannot_be_processed_holds_only_its_workload",
            "test_reader_that_raises_costs_only_its_target",
        ),
        "invalid configuration on reload": (
            "test_swapped_config_map_is_applied_without_a_signal_and_an_invalid_one_is_not",
            "test_sighup_applies_a_valid_configuration_and_rejects_an_invalid_one",
        ),
        "invalid configuration at start": ("test_invalid_configuration_is_status_78_and_only_its_errors",),
        "invalid trigger metadata": (
            "test_bad_metadata_is_an_error_for_its_object_alone_and_wakes_it_only_with_a_fallback",
        ),
        "a response of garbage, endless, or of a million series": ("test_misbehaving_target_delays_no_other_workload",),
    },
    "Replicas of Tidegate": {
        "the leader is killed": ("test_leader_killed_in_a_burst_changes_no_decision_and_one_follower_leads",),
        "the leader drains; clocks differ by minutes; rolling upgrade between neighbouring versions": (
            "test_drained_leader_is_replaced_at_once_and_changes_no_decision",
            "test_clocks_five_minutes_apart_change_no_decision_and_no_age",
            "test_times_are_shifted_to_the_followers_clock",
            "test_rolling_replacement_of_replicas_changes_no_decision",
            "test_leader_of_the_previous_version_is_followed",
            "test_leader_of_the_next_version_is_followed",
        ),
        "the leader is frozen": (
            "test_frozen_leader_follows_after_it_is_thawed",
            "test_wake_up_on_the_connection_of_a_frozen_replica_arrives_once_it_is_killed",
        ),
        "the leader's ticks fail, or replicas are cut off: network, certificates, another frame format": (
            "test_leader_whose_ticks_fail_is_not_followed",
            "test_replicas_that_cannot_reach_each_other_decide_alone_without_errors",
            "test_unknown_format_is_not_followed",
            "test_client_without_a_peer_certificate_gets_no_board",
        ),
        "the API server: the Lease cannot be renewed": (
            "test_leader_keeps_leading_and_followers_keep_following_without_an_api_server",
        ),
        "the leader's state cannot be decoded": ("test_unreadable_state_costs_only_itself_and_is_logged_once",),
    },
    "KEDA": {
        "KEDA's operator": ("test_nothing_scales_without_kedas_operator_and_its_first_poll_wakes_waiting_workloads",),
        "KEDA's metrics server": ("test_sleeping_workload_wakes_to_one_replica_without_kedas_metrics_server",),
    },
    "Clocks": {
        "the node's clock is set": ("test_set_system_clock_changes_no_decision",),
        "… while Tidegate was down": ("test_state_from_the_future_is_moved_to_now_and_is_as_old_as_it_is_ahead",),
        "a source's timestamps are ahead": ("test_sample_with_a_timestamp_ahead_is_fresh_no_longer_than_any_other",),
        "… are behind by more than a reading is fresh": (
            "test_sample_with_a_timestamp_far_behind_is_held_and_then_an_error",
        ),
    },
}
