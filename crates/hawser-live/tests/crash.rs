//! The slow tier: 200 kills of the shipped program under random clients (`make crash`).

use hawser_live::churn;
use hawser_live::process::is_root;
use hawser_testkit::skip::say;

/// How often the server is killed.
const KILLS: u32 = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_nothing_is_lost_or_leaked_in_200_kills() {
    if !is_root() {
        return;
    }
    let seed = std::process::id().into();
    say(&format!("crash: seed {seed}"));

    let tally = churn::run(KILLS, seed).await;

    say(&tally.line());
    assert_eq!(tally.missing(), [""; 0], "operations that were never acknowledged");
    assert!(tally.made > 0 && tally.undone > 0, "no change was cut off: {tally:?}");
}
