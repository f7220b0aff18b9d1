//! Two processes of ours that are killed and started again: the controller, which leads, and the node.

use hawser_live::churn::Rng;
use hawser_live::cluster::driver::{Driver, Half, Hawser, Records, free_lease, wait_leader};
use hawser_live::cluster::{Cluster, chain};

/// The processes, and how often each was killed.
pub(crate) struct Killer {
    controller: Driver,
    node: Driver,
    kills: [u32; 2],
    /// Kills soon after a start, while there was still something to take up.
    early: u32,
}

impl Killer {
    /// Starts both; the node dials the controller's socket in the state folder that they share.
    pub(crate) fn start(cluster: &mut Cluster) -> Self {
        let controller = Hawser::new(Half::Controller).without_sidecars();
        let controller = Driver::start(cluster, controller.records(Records::Cluster));
        let node = Driver::start(cluster, Hawser::new(Half::Node));
        wait_leader(cluster);
        Self { controller, node, kills: [0; 2], early: 0 }
    }

    /// Kills one of them or both, and starts it again; sometimes it dies once more as it starts.
    pub(crate) fn strike(&mut self, cluster: &Cluster, rng: &mut Rng) {
        let (controller, node) = *rng.pick(&[(true, false), (false, true), (true, true)]);
        if controller {
            self.kill_controller(cluster, rng);
            if rng.one_in(4) {
                std::thread::sleep(rng.millis(5, 400));
                self.kill_controller(cluster, rng);
                self.early += 1;
            }
        }
        if node {
            self.kill_node(cluster);
            if rng.one_in(4) {
                std::thread::sleep(rng.millis(5, 400));
                self.kill_node(cluster);
                self.early += 1;
            }
        }
    }

    fn kill_controller(&mut self, cluster: &Cluster, rng: &mut Rng) {
        self.controller.kill();
        self.kills[0] += 1;
        // It is dead for certain, so the next one need not wait until its lease has expired; now and
        // then it does.
        if !rng.one_in(5) {
            free_lease(cluster);
        }
        self.controller.start_again(cluster);
    }

    fn kill_node(&mut self, cluster: &Cluster) {
        self.node.kill();
        self.kills[1] += 1;
        self.node.start_again(cluster);
    }

    /// Panics when one of them has ended that was not killed.
    #[track_caller]
    pub(crate) fn assert_alive(&mut self) {
        for driver in [&mut self.controller, &mut self.node] {
            if let Err(error) = driver.process().check() {
                panic!("{}", chain(&error));
            }
        }
    }

    /// Waits until both are at work and nothing is killed any more.
    pub(crate) fn rest(&mut self, cluster: &mut Cluster) {
        self.assert_alive();
        self.controller.wait_listening(cluster);
        self.node.wait_listening(cluster);
        wait_leader(cluster);
    }

    /// Where commands of the program are answered.
    pub(crate) fn controller(&self) -> &Driver {
        &self.controller
    }

    /// Panics when either was killed less often.
    #[track_caller]
    pub(crate) fn assert_killed(&self, least: u32) {
        assert!(self.kills.iter().all(|kills| *kills >= least), "only {}", self.tally());
    }

    /// What was done, in words.
    pub(crate) fn tally(&self) -> String {
        let [controller, node] = self.kills;
        let early = self.early;
        format!("{controller} kills of the controller, {node} of the node, {early} as they started")
    }

    /// Ends both in order.
    pub(crate) fn stop(self) {
        self.node.stop();
        self.controller.stop();
    }
}
