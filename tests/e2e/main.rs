//! The agent, as the program that operators run, against an API server and a mock of Azure's metadata service.
//!
//! A test knows its [`scene::Scene`] and clients only, not what kind of API server is behind them: each runs on the embedded
//! one, and on a real one where that can be had.

mod agreement;
mod costs;
mod deadline;
mod doctor;
mod drain;
mod embedded;
mod marks;
mod outside;
mod ownership;
mod reload;
mod scene;
mod trouble;
mod walkthrough;

use std::process::ExitCode;
use std::time::Duration;

use control_plane::harness::{self, Test};
use control_plane::{Options, SideKind, tests};

fn main() -> ExitCode {
    let mut all = usual();
    all.extend(long().into_iter().map(|test| test.limit(Duration::from_secs(150))));
    all.extend(particular());
    harness::run_on(&[embedded::embedded(), SideKind::real()], &Options::default(), &all)
}

fn usual() -> Vec<Test> {
    tests![
        drain::a_budget_at_zero_holds_its_pod_until_a_new_one_is_ready,
        drain::pods_that_belong_to_the_node_or_have_finished_are_left_alone,
        drain::a_stateful_pod_that_was_created_anew_elsewhere_is_not_touched,
        drain::two_budgets_on_one_pod_are_reported_and_hold_up_nobody_else,
        drain::a_pod_in_a_vanishing_namespace_is_waited_for,
        drain::an_agent_killed_in_the_middle_goes_on_where_it_stopped,
        drain::an_agent_killed_twenty_times_asks_no_pod_twice,
        drain::an_agent_asked_to_stop_leaves_the_node_as_it_is,
        drain::a_pod_that_is_bound_during_the_drain_is_evicted_too,
        drain::evictions_that_admission_refuses_are_named_and_hold_up_nobody_else,
        drain::a_right_that_is_missing_is_told_once_and_asked_for_slowly,
        drain::a_profile_says_which_pods_are_evicted,
        deadline::a_preempt_asks_all_pods_at_once_and_deletes_what_is_held_back,
        deadline::a_preempt_with_eight_seconds_left_does_the_same_in_less_time,
        deadline::a_redeploy_leaves_at_its_deadline_what_a_budget_holds_back,
        deadline::a_terminate_deletes_what_a_budget_holds_back_before_its_deadline,
        deadline::a_nearer_event_shortens_a_running_drain,
        outside::each_change_is_told_outside_once_over_several_lives,
        outside::a_receiver_that_does_not_answer_delays_nothing,
        ownership::a_node_that_an_admin_cordoned_is_drained_and_stays_cordoned,
        ownership::a_cancelled_event_stops_the_drain_and_gives_the_node_back,
        ownership::a_node_is_given_back_after_a_reboot_when_it_is_ready,
        ownership::a_cordon_taken_away_during_the_drain_is_put_back,
        ownership::a_hold_stops_a_running_drain_until_it_is_lifted,
        ownership::a_held_node_is_given_back_when_the_hold_is_lifted,
        costs::an_event_for_another_machine_costs_a_look_at_repairs_and_nothing_else,
        costs::a_drain_costs_little_more_than_one_request_a_pod,
        costs::a_dry_run_writes_nothing,
        costs::a_dry_run_leaves_a_drain_alone_that_was_begun_without_it,
        costs::watches_that_are_refused_do_not_become_a_stream_of_lists,
        doctor::nothing_fails_where_the_agent_would_do_well,
        doctor::a_node_of_another_machine_and_an_event_of_this_one_are_told,
        trouble::answers_of_azure_that_are_none_change_nothing,
        trouble::azure_away_in_the_middle_of_a_drain_does_not_stop_it,
        trouble::events_that_cannot_be_written_delay_nothing,
        trouble::a_write_whose_answer_is_lost_is_not_done_twice,
        trouble::a_node_that_changes_under_our_hands_is_written_all_the_same,
        trouble::the_cordon_waits_for_no_watch,
        trouble::a_write_that_a_webhook_takes_back_is_told_and_not_repeated_in_a_loop,
        trouble::a_mute_watch_and_a_busy_server_do_not_stop_a_drain,
        marks::marks_come_with_the_cordon_and_go_with_it,
        marks::marks_that_were_there_before_stay_as_they_were,
        marks::what_another_writes_between_our_look_and_our_write_survives,
        marks::a_taint_that_admission_refuses_stops_neither_cordon_nor_drain,
        marks::a_taint_that_deletes_pods_comes_after_the_drain,
        marks::the_autoscalers_taint_and_cordon_are_left_to_it,
        marks::a_scale_down_that_is_given_up_leaves_the_node_cordoned_for_its_event,
        marks::a_drain_that_cannot_end_is_rolled_back_when_its_event_goes,
        marks::an_incomplete_drain_is_rolled_back_when_its_event_has_run,
        marks::conditions_tell_of_an_event_and_go_after_it,
        marks::conditions_of_others_stay_and_stale_ones_of_ours_go,
        agreement::an_event_is_not_started_early_while_one_of_its_nodes_has_a_pod,
        agreement::a_restart_that_a_user_asked_for_starts_when_the_node_is_drained,
        agreement::an_event_that_azure_asked_for_is_not_started_by_a_rule_for_users,
        agreement::an_event_that_has_started_needs_no_approval,
        agreement::an_event_that_may_start_at_once_waits_for_nothing,
        agreement::an_event_waits_for_a_pod_that_came_after_the_drain,
        agreement::nodes_of_a_pool_are_drained_one_after_the_other,
        agreement::a_preempt_waits_for_no_slot,
        agreement::the_restart_of_a_dead_machine_under_repair_is_started_for_it,
        reload::a_policy_that_changes_counts_for_later_events,
        reload::a_broken_policy_leaves_the_last_good_one_in_force,
        reload::rights_that_policies_need_and_nobody_gave_are_named_before_they_are_needed,
        reload::an_annotation_gives_a_node_another_policy,
        reload::a_node_whose_annotation_names_no_policy_is_left_alone_and_says_so,
    ]
}

fn long() -> Vec<Test> {
    tests![
        agreement::an_event_is_started_early_once_when_all_its_nodes_are_drained,
        agreement::another_node_tells_azure_if_the_first_dies_over_it,
        agreement::the_slot_of_a_node_that_died_goes_to_another,
        drain::a_full_node_is_drained_with_little_more_than_one_request_a_pod,
    ]
}

/// Those that need a server of their own, or only one of the servers.
fn particular() -> Vec<Test> {
    vec![
        Test::new(
            "trouble::an_api_server_away_for_twenty_seconds_is_waited_for",
            trouble::an_api_server_away_for_twenty_seconds_is_waited_for,
        )
        .alone(Options::default())
        .limit(Duration::from_secs(150)),
        Test::new("doctor::each_right_that_is_missing_is_named", doctor::each_right_that_is_missing_is_named)
            // Behind the embedded one everything is allowed.
            .only_on("real"),
        // Where no other test has made repairs known.
        Test::new(
            "agreement::a_repair_is_told_of_its_machines_event",
            agreement::a_repair_is_told_of_its_machines_event,
        )
        .alone(Options::default())
        .limit(Duration::from_secs(150)),
        Test::new(
            "walkthrough::the_readmes_command_shows_a_node_drained_and_given_back",
            walkthrough::the_readmes_command_shows_a_node_drained_and_given_back,
        )
        .only_on("real")
        // It may have to build the programs first.
        .limit(Duration::from_secs(900)),
    ]
}
