//! The agent, as the program that operators run, against an API server and a mock of Azure's metadata service.
//!
//! A test knows its [`scene::Scene`] and clients only, not what kind of API server is behind them: each runs on the embedded
//! one, and on a real one where that can be had.

mod costs;
mod deadline;
mod drain;
mod embedded;
mod ownership;
mod scene;
mod trouble;
mod walkthrough;

use std::process::ExitCode;
use std::time::Duration;

use control_plane::harness::{self, Test};
use control_plane::{Options, SideKind, tests};

fn main() -> ExitCode {
    let mut all = tests![
        drain::a_budget_at_zero_holds_its_pod_until_a_new_one_is_ready,
        drain::pods_that_belong_to_the_node_or_have_finished_are_left_alone,
        drain::a_stateful_pod_that_was_created_anew_elsewhere_is_not_touched,
        drain::two_budgets_on_one_pod_are_reported_and_hold_up_nobody_else,
        drain::a_pod_in_a_vanishing_namespace_is_waited_for,
        drain::an_agent_killed_in_the_middle_goes_on_where_it_stopped,
        drain::an_agent_asked_to_stop_leaves_the_node_as_it_is,
        deadline::a_preempt_asks_all_pods_at_once_and_deletes_what_is_held_back,
        deadline::a_redeploy_leaves_at_its_deadline_what_a_budget_holds_back,
        deadline::a_terminate_deletes_what_a_budget_holds_back_before_its_deadline,
        deadline::a_nearer_event_shortens_a_running_drain,
        ownership::a_node_that_an_admin_cordoned_is_drained_and_stays_cordoned,
        ownership::a_cancelled_event_stops_the_drain_and_gives_the_node_back,
        ownership::a_node_is_given_back_after_a_reboot_when_it_is_ready,
        ownership::a_cordon_taken_away_during_the_drain_is_put_back,
        ownership::a_hold_stops_a_running_drain_until_it_is_lifted,
        ownership::a_held_node_is_given_back_when_the_hold_is_lifted,
        costs::an_event_for_another_machine_costs_the_api_server_nothing,
        costs::a_drain_costs_little_more_than_one_request_a_pod,
        costs::a_dry_run_writes_nothing,
        costs::a_dry_run_leaves_a_drain_alone_that_was_begun_without_it,
        costs::watches_that_are_refused_do_not_become_a_stream_of_lists,
        trouble::answers_of_azure_that_are_none_change_nothing,
        trouble::azure_away_in_the_middle_of_a_drain_does_not_stop_it,
        trouble::events_that_cannot_be_written_delay_nothing,
        trouble::a_write_whose_answer_is_lost_is_not_done_twice,
        trouble::a_node_that_changes_under_our_hands_is_written_all_the_same,
        trouble::the_cordon_waits_for_no_watch,
        trouble::a_write_that_a_webhook_takes_back_is_told_and_not_repeated_in_a_loop,
        trouble::a_mute_watch_and_a_busy_server_do_not_stop_a_drain,
    ];
    all.push(
        Test::new(
            "trouble::an_api_server_away_for_twenty_seconds_is_waited_for",
            trouble::an_api_server_away_for_twenty_seconds_is_waited_for,
        )
        .alone(Options::default())
        .limit(Duration::from_secs(150)),
    );
    all.push(
        Test::new(
            "walkthrough::the_readmes_command_shows_a_node_drained_and_given_back",
            walkthrough::the_readmes_command_shows_a_node_drained_and_given_back,
        )
        .only_on("real")
        // It may have to build the programs first.
        .limit(Duration::from_secs(900)),
    );
    harness::run_on(&[embedded::embedded(), SideKind::real()], &Options::default(), &all)
}
