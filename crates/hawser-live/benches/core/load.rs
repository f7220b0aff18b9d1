//! Creates and lists with many volumes, and what they leave in memory.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hawser_api::RestClient;
use hawser_core::name::Alias;
use hawser_core::page::PageRequest;
use hawser_core::port::Control;
use hawser_core::port::control::{Reply, VolumeFilter};
use hawser_core::volume::{VolumeRef, VolumeRequest};
use hawser_core::{ByteSize, Change, Result};
use hawser_live::process::{Ground, Program};
use tokio::task::JoinSet;

use crate::process::{End, flush, resident, restart};
use hawser_live::report::{Figure, Report, mebibytes, median, milliseconds, rest};

const SIZES: [usize; 3] = [1_000, 10_000, 100_000];
/// How many clients ask at the same time, each on a connection of its own.
const CLIENTS: usize = 32;
/// How many fill the store between the measurements.
const FILLERS: usize = 128;
/// Volumes of one sample, and how many samples; they are removed again, so that the size stays.
const SAMPLE: usize = 1_000;
const SAMPLES: usize = 3;
/// How many creates one client makes, one after the other.
const ALONE: usize = 100;
/// For how long lists are asked for.
const LISTING: Duration = Duration::from_secs(1);
const WAIT: Duration = Duration::from_secs(30);
const LOADED_KIB: f64 = 60.0 * 1024.0;

/// A server with the null provider and clients of it.
struct Load {
    ground: Ground,
    clients: Vec<Arc<RestClient>>,
}

/// Fills a server step by step and measures at each.
pub(crate) async fn run(report: &mut Report) {
    let ground = Ground::below(&crate::place());
    let config = ground.path().join("hawser.toml");
    fs::write(&config, "[class.default]\nprovider = \"null\"\n").expect("a settings file");
    let config = config.display().to_string();
    let args = ["--config", config.as_str()];
    let clients = (0..FILLERS).map(|_| Arc::new(ground.client())).collect();
    let load = Load { ground, clients };
    let mut server = load.ground.up(&args).await;
    let floor = flush(&load.ground);
    let (mut costs, mut present) = (Vec::new(), 0);
    for size in SIZES {
        load.create(FILLERS, "fill", present..size).await;
        present = size;
        costs.push(load.creates(report, size, floor).await);
        load.lists(report, size).await;
        if size == 10_000 {
            server = memory(report, &load, server, &args).await;
        }
    }
    growth(report, &costs);
    let figure = Figure { ours: mebibytes(resident(&server)), ..Figure::default() };
    report.add("memory-100000-after-load", figure);
    let work = load.busy();
    server = restart(report, &load.ground, server, &args, End::Killed).await;
    work.abort();
    server = restart(report, &load.ground, server, &args, End::Stopped).await;
    server.stop();
}

/// The cost of a create may grow with the logarithm of the number of volumes.
fn growth(report: &mut Report, costs: &[f64]) {
    let (small, large) = (costs[0], costs[SIZES.len() - 1]);
    let bar = (SIZES[SIZES.len() - 1] as f64).ln() / (SIZES[0] as f64).ln();
    let ratio = large / small;
    let figure = Figure {
        ours: format!("{}@100000", milliseconds(large)),
        peer: Some(format!("{}@1000", milliseconds(small))),
        ratio: Some(ratio),
        bar: Some((format!("{bar:.2}"), ratio <= bar)),
    };
    report.add("create-cost-growth", figure);
}

/// Memory after the load, and after a restart and a walk over all volumes.
async fn memory(report: &mut Report, load: &Load, mut server: Program, args: &[&str]) -> Program {
    rest().await;
    report.at_most("memory-10000-after-load", resident(&server), LOADED_KIB, mebibytes);
    server.stop();
    server = load.ground.up(args).await;
    rest().await;
    report.at_most("memory-10000-after-restart", resident(&server), LOADED_KIB, mebibytes);
    load.tokens(1000).await;
    rest().await;
    report.at_most("memory-10000-after-walk", resident(&server), LOADED_KIB, mebibytes);
    server
}

impl Load {
    /// Creates volumes with so many clients; answers the seconds it took.
    async fn create(&self, clients: usize, name: &str, range: std::ops::Range<usize>) -> f64 {
        self.each(clients, name, range, async |client, alias| {
            let request = VolumeRequest::new(alias, ByteSize::gib(1));
            match client.create_volume(request, WAIT).await? {
                Reply::Done(Change::Made(_)) => Ok(()),
                other @ (Reply::Done(Change::Already(_)) | Reply::Pending(_)) => {
                    panic!("not made, or not new: {other:?}")
                }
            }
        })
        .await
    }

    async fn delete(&self, name: &str, range: std::ops::Range<usize>) {
        let remove = async |client: Arc<RestClient>, alias| {
            let volume = VolumeRef::Alias(alias);
            client.delete_volume(&volume, WAIT).await.map(drop)
        };
        self.each(FILLERS, name, range, remove).await;
    }

    async fn each<F>(
        &self,
        clients: usize,
        name: &str,
        range: std::ops::Range<usize>,
        work: impl Fn(Arc<RestClient>, Alias) -> F + Clone + Send + Sync + 'static,
    ) -> f64
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let next = Arc::new(AtomicUsize::new(range.start));
        let mut tasks = JoinSet::new();
        let begun = Instant::now();
        for client in self.clients.iter().take(clients) {
            let (client, next, work) = (client.clone(), next.clone(), work.clone());
            let (name, end) = (name.to_owned(), range.end);
            tasks.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= end {
                        return Ok(());
                    }
                    let alias = Alias::native(format!("{name}-{number}")).expect("a legal name");
                    work(client.clone(), alias).await?;
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            let ended: Result<()> = ended.expect("a client that works");
            ended.unwrap_or_else(|error| panic!("{name}: {}", error.sentence()));
        }
        begun.elapsed().as_secs_f64()
    }

    /// Measures creates at one size; answers the cost of one.
    async fn creates(&self, report: &mut Report, size: usize, floor: f64) -> f64 {
        let mut costs = Vec::new();
        for _ in 0..SAMPLES {
            let seconds = self.create(CLIENTS, "sample", 0..SAMPLE).await;
            costs.push(seconds / SAMPLE as f64);
            self.delete("sample", 0..SAMPLE).await;
        }
        let cost = median(costs);
        let ours = format!("{:.0}/s({}each,{CLIENTS}clients)", 1.0 / cost, milliseconds(cost));
        report.add(&format!("creates-{size}"), Figure { ours, ..Figure::default() });
        let mut times = Vec::new();
        for number in 0..ALONE {
            times.push(self.create(1, "alone", number..number + 1).await);
        }
        self.delete("alone", 0..ALONE).await;
        let time = median(times);
        let figure = Figure {
            ours: milliseconds(time),
            peer: Some(format!("{}(4KiB+fdatasync)", milliseconds(floor))),
            ratio: Some(time / floor),
            bar: None,
        };
        report.add(&format!("create-latency-{size}"), figure);
        cost
    }

    /// Where every page begins but the first.
    async fn tokens(&self, limit: usize) -> Vec<Option<String>> {
        let mut tokens = vec![None];
        loop {
            let page = PageRequest { limit, token: tokens.last().cloned().flatten() };
            let page = self.clients[0].list_volumes(&VolumeFilter::default(), &page).await;
            match page.expect("a page").next {
                Some(token) => tokens.push(Some(token)),
                None => return tokens,
            }
        }
    }

    /// Measures lists of pages from all over the list.
    async fn lists(&self, report: &mut Report, size: usize) {
        for limit in [100, 1000] {
            let tokens = Arc::new(self.tokens(limit).await);
            let pages = Arc::new(AtomicUsize::new(0));
            let mut tasks = JoinSet::new();
            let begun = Instant::now();
            for client in self.clients.iter().take(CLIENTS) {
                let (client, tokens, pages) = (client.clone(), tokens.clone(), pages.clone());
                tasks.spawn(async move {
                    while begun.elapsed() < LISTING {
                        // A stride that is prime to most counts: neighbours ask for far pages.
                        let at = pages.fetch_add(1, Ordering::Relaxed) * 7919 % tokens.len();
                        let page = PageRequest { limit, token: tokens[at].clone() };
                        let page = client.list_volumes(&VolumeFilter::default(), &page).await;
                        drop(page.expect("a page"));
                    }
                });
            }
            while let Some(ended) = tasks.join_next().await {
                ended.expect("a client that works");
            }
            let pages = pages.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
            let ours = format!("{pages:.0}pages/s({:.0}volumes/s)", pages * limit as f64);
            let figure = Figure { ours, ..Figure::default() };
            report.add(&format!("lists-{size}-pages-of-{limit}"), figure);
        }
    }

    /// Creates without end, whatever becomes of them: for a server that is killed at work.
    fn busy(&self) -> tokio::task::JoinHandle<()> {
        let clients: Vec<_> = self.clients.iter().take(CLIENTS).cloned().collect();
        tokio::spawn(async move {
            let mut tasks = JoinSet::new();
            for (index, client) in clients.into_iter().enumerate() {
                tasks.spawn(async move {
                    for number in 0.. {
                        let alias = Alias::native(format!("busy-{index}-{number}"));
                        let request =
                            VolumeRequest::new(alias.expect("a legal name"), ByteSize::gib(1));
                        if client.create_volume(request, WAIT).await.is_err() {
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                    }
                });
            }
            while tasks.join_next().await.is_some() {}
        })
    }
}
