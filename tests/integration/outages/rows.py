"""The tests of each row of the tables of docs/explanation/outages.md, by heading and by first cell."""

TESTS = {
    "KEDA's fallback": {
        "none": ("test_a_pod_that_falls_silent_is_held_and_then_an_error_which_moves_nobody_without_a_fallback",),
        "`replicas: 6`": (
            "test_a_tidegate_that_begins_while_the_api_server_is_silent_answers_errors_which_wake_who_has_a_fallback",
            "test_fallback_does_not_engage_while_the_scaler_is_wholly_down",
        ),
        "`replicas: 0`": ("test_a_fallback_of_zero_replicas_lets_an_error_put_to_sleep",),
    },
    "Sources": {
        "the only pod: refused, no answer, HTTP error, or no queue series": (
            "test_a_pod_that_falls_silent_is_held_and_then_an_error_which_moves_nobody_without_a_fallback",
        ),
        "up to half of the ready pods": (
            "test_a_lost_node_scales_nothing_down_and_its_pods_are_imputed_and_then_replaced",
        ),
        "more than half of them": ("test_of_three_pods_the_two_that_fall_silent_are_held_and_then_an_error",),
        "one series: missing, invalid, repeated or unparsable; a Redis key of the wrong type": (
            "test_a_queue_that_cannot_be_read_never_ends_at_zero",
            "test_a_key_that_is_no_queue_wakes_nobody_puts_nobody_to_sleep_and_is_told",
        ),
        "one GPU: missing, unparsable or without pod label": (
            "test_a_busy_gpu_that_cannot_be_read_never_ends_at_zero",
        ),
        "the gateway": ("test_a_gateway_that_falls_silent_is_held_and_then_an_error_and_wakes_no_sleeper",),
        "dcgm-exporter, sized by requests": (
            "test_a_restarted_dcgm_exporter_never_reads_as_idle",
            "test_between_two_pods_of_a_dcgm_exporter_nothing_falls_asleep",
        ),
        "dcgm-exporter, sized by GPUs": (
            "test_who_is_sized_by_gpus_is_held_and_then_an_error_without_dcgm_exporter_and_a_sleeper_sleeps_on",
        ),
        "Prometheus fails or returns nothing; Redis hangs, refuses, loads, or lost its master": (
            "test_a_prometheus_that_falls_silent_is_held_and_then_an_error_and_wakes_no_sleeper",
            "test_a_redis_that_falls_silent_is_held_and_then_an_error_and_wakes_no_sleeper",
        ),
        "DNS for `dns` targets: failure": (
            "test_a_name_server_that_fails_is_held_and_then_an_error_and_a_sleeper_sleeps_and_can_be_woken",
        ),
        "DNS: no such name, or no address (without Kubernetes)": (
            "test_a_name_server_that_says_that_nobody_is_there_is_believed_and_never_puts_to_sleep",
        ),
    },
    "The Kubernetes API server": {
        "it refuses connections, restarts, or never answers; 401 or 403: a Role is missing": (
            "test_an_api_server_that_goes_away_changes_no_answer_and_back_again_all_is_right",
            "test_an_api_server_that_stays_silent_is_held_and_then_an_error_and_sleepers_sleep_and_can_be_woken",
            "test_an_api_server_that_hangs_changes_no_answer",
            "test_an_api_server_that_refuses_us_is_as_good_as_silent",
        ),
        "… workload found at zero": ("test_at_zero_stays_at_zero_while_the_api_server_is_away",),
        "410 Gone": ("test_an_api_server_that_forgot_the_past_is_listed_anew",),
        "a ScaledObject is created meanwhile": ("test_an_api_server_that_hangs_changes_no_answer",),
        "Tidegate starts meanwhile, with or without `state`": (
            "test_a_tidegate_that_begins_while_the_api_server_is_silent_answers_errors_which_wake_who_has_a_fallback",
        ),
    },
    "Tidegate": {
        "it is killed or unreachable": (
            "test_a_tidegate_that_is_killed_never_triggers_a_fallback_and_the_next_one_answers_as_before",
        ),
        "it starts without a checkpoint": (
            "test_a_tidegate_that_is_killed_never_triggers_a_fallback_and_the_next_one_answers_as_before",
            "test_without_a_directory_nothing_is_remembered",
        ),
        "it restarts with `state`, sources are down": (
            "test_a_restart_changes_nothing_killed_in_a_burst_while_the_sources_die",
            "test_killed_at_zero_it_wakes_nobody_and_the_next_request_does",
        ),
        "it restarts during keep-warm": (
            "test_killed_while_it_is_kept_warm_the_clock_goes_on_unless_something_was_finished",
        ),
        "the newest checkpoint is torn": (
            "test_the_newest_snapshot_spoilt_the_one_before_it_is_read_and_that_is_said",
        ),
        "its disk is full, read-only or hangs": (
            "test_a_directory_that_cannot_be_written_costs_the_snapshots_and_nothing_else",
            "test_a_disk_that_hangs_does_not_keep_tidegate_from_ending",
        ),
        "it is frozen: swapping node, paused container": (
            "test_a_tidegate_that_is_frozen_answers_nobody_and_thawed_it_answers_as_before",
        ),
        "its gRPC server hangs (bug)": ("test_livez_fails_while_ticks_go_on_when_grpc_does_not_answer",),
        "it drains (SIGTERM)": ("test_sigterm_ends_streams_with_ok_so_that_keda_comes_back_soon",),
        "its ticks fail (bug)": (
            "test_after_the_hold_every_answer_is_an_error_until_ticks_work_again",
            "test_giving_up_leaves_who_sleeps_asleep_because_an_error_would_let_kedas_fallback_wake_it",
        ),
        "a response triggers a bug": (
            "test_a_response_that_cannot_be_processed_holds_its_workload_and_no_other",
            "test_a_reader_that_raises_costs_its_target",
        ),
        "invalid configuration on reload": (
            "test_a_swapped_config_map_is_taken_without_a_signal_and_a_bad_one_is_not",
            "test_sighup_takes_a_good_configuration_and_refuses_a_bad_one",
        ),
        "invalid configuration at start": ("test_invalid_configuration_is_status_78_and_only_its_errors",),
        "invalid trigger metadata": (
            "test_bad_metadata_is_an_error_for_its_object_alone_and_wakes_it_only_where_that_has_a_fallback",
        ),
        "a response of garbage, endless, or of a million series": (
            "test_a_source_that_misbehaves_costs_nobody_else_a_tick",
        ),
    },
    "Replicas of Tidegate": {
        "the leader is killed": ("test_a_leader_that_is_killed_in_a_burst_changes_no_answer_and_one_other_leads",),
        "the leader drains; clocks differ by minutes; rolling upgrade between neighbouring versions": (
            "test_a_leader_that_is_drained_lets_another_lead_at_once_and_changes_no_answer",
            "test_clocks_that_are_five_minutes_apart_change_no_answer_and_no_age",
            "test_times_are_shifted_to_the_followers_clock",
            "test_replicas_are_replaced_one_after_the_other_and_no_answer_changes",
            "test_leader_of_the_previous_version_is_followed",
            "test_leader_of_the_next_version_is_followed",
        ),
        "the leader is frozen": (
            "test_a_leader_that_was_frozen_follows_when_it_is_thawed",
            "test_a_wake_up_on_the_connection_of_a_frozen_replica_arrives_once_it_is_killed",
        ),
        "the leader's ticks fail, or replicas are cut off: network, certificates, another frame format": (
            "test_leader_whose_ticks_fail_is_not_followed",
            "test_where_the_replicas_cannot_reach_each_other_each_answers_and_nobody_errs",
            "test_unknown_format_is_not_followed",
            "test_client_without_a_peer_certificate_gets_no_board",
        ),
        "the API server: the Lease cannot be renewed": (
            "test_without_an_api_server_the_leader_leads_on_and_the_others_follow",
        ),
        "the leader's state cannot be decoded": ("test_unreadable_state_costs_only_itself_and_is_logged_once",),
    },
    "KEDA": {
        "KEDA's operator": (
            "test_without_kedas_operator_nobody_moves_and_the_first_poll_of_the_next_one_wakes_who_waited",
        ),
        "KEDA's metrics server": (
            "test_without_kedas_metrics_server_a_sleeper_is_woken_to_one_and_no_further_and_sleeps_again",
        ),
    },
    "Clocks": {
        "the node's clock is set": ("test_a_system_clock_that_is_set_changes_no_answer",),
        "… while Tidegate was down": ("test_a_state_from_the_future_is_moved_to_now_and_is_as_old_as_it_is_ahead",),
        "a source's timestamps are ahead": (
            "test_a_page_stamped_by_a_clock_that_is_ahead_is_believed_no_longer_than_any_other",
        ),
        "… are behind by more than a reading is fresh": (
            "test_a_page_stamped_by_a_clock_that_is_behind_is_too_old_and_held_and_then_an_error",
        ),
    },
}
