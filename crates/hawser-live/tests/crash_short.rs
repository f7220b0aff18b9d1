//! A dozen kills of the shipped program under random clients, in every test run. `crash.rs` has the
//! 200.

use hawser_live::churn;
use hawser_live::process::is_root;
use hawser_testkit::skip::say;

/// How often the server is killed.
const KILLS: u32 = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_nothing_is_lost_or_leaked_in_12_kills() {
    if !is_root() {
        return;
    }
    let seed = std::process::id().into();
    say(&format!("crash: seed {seed}"));

    let tally = churn::run(KILLS, seed).await;

    say(&tally.line());
}
