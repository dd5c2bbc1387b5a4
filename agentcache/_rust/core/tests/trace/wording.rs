//! What a core answers, as one line of text by position: the same as `tests/parity/wording.py` writes.

use std::fmt::Write;

use agentcache_core::{
    Boundary, Committed, Config, Effect, Event, EventKind, Evicted, Inserted, Job, Kind, Locked, MatchResult,
    MissReason, Piece, Planned, ReleaseMode, Released, Snapshot, Tier,
};
use sha2::{Digest, Sha256};

const HASH_BYTES: usize = 8;

/// Writes answers; knows the components' names and the epoch that the core was born with.
pub struct Wording {
    pub names: Vec<String>,
    page_tokens: usize,
    epoch: i64,
}

impl Wording {
    pub fn new(config: &Config, epoch: i64) -> Self {
        Wording { names: config.names.clone(), page_tokens: config.page_tokens as usize, epoch }
    }

    pub fn matched(&self, found: &MatchResult) -> String {
        let (device, any) = (self.boundary(&found.device), self.boundary(&found.any_tier));
        let miss = found.miss.map_or("-".into(), |miss| {
            let reason = match miss.reason {
                MissReason::NotCached => "not_cached",
                MissReason::WindowGap => "window_gap",
                MissReason::NoCheckpoint => "no_checkpoint",
                MissReason::OnHost => "on_host",
            };
            format!("{}@{}:{reason}", self.names[miss.component], miss.position)
        });
        format!("device={device} any={any} full={} miss={miss}", found.full_tokens)
    }

    pub fn inserted(&self, answer: &Inserted) -> String {
        let (taken, kept) = (self.pieces(&answer.taken), self.pieces(&answer.kept));
        let frontier = self.boundary(&answer.frontier);
        format!("frontier={frontier} taken={taken} kept={kept} {}", self.effects(&answer.effects))
    }

    pub fn locked(&self, answer: &Locked) -> String {
        format!("at={} pieces={}", self.boundary(&answer.boundary), self.pieces(&answer.pieces))
    }

    pub fn evicted(&self, answer: &Evicted) -> String {
        let effects = self.effects(&answer.effects);
        format!("freed={} moving={} short={} {effects}", answer.freed, answer.moving, answer.short)
    }

    pub fn planned(&self, answer: &Planned) -> String {
        let job = answer.job.as_ref().map_or("-".into(), |job| self.job(job));
        let lease = if answer.lease.is_some() { "yes" } else { "-" };
        format!("job={job} lease={lease} {}", self.effects(&answer.effects))
    }

    pub fn committed(&self, answer: &Committed) -> String {
        let (landed, dropped) = (self.pieces(&answer.landed), self.pieces(&answer.dropped));
        format!("landed={landed} dropped={dropped} {}", self.effects(&answer.effects))
    }

    pub fn released(&self, answer: &Released) -> String {
        let mode = match answer.mode {
            ReleaseMode::Release => "release",
            ReleaseMode::Demote => "demote",
            ReleaseMode::Drop => "drop",
            ReleaseMode::Preview => "preview",
        };
        let held = answer.held.iter().map(|held| {
            let (name, tier) = (&self.names[held.component], tier(held.tier));
            format!("{name}.{tier}:{}/{}", held.tokens, held.slots)
        });
        let held = joined(&held.collect::<Vec<_>>(), "+");
        format!("mode={mode} held={held} markers={} {}", answer.markers, self.effects(&answer.effects))
    }

    pub fn pieces(&self, pieces: &[Piece]) -> String {
        let words = pieces.iter().map(|piece| {
            let (name, slots) = (&self.names[piece.component], runs(&piece.slots));
            format!("{name}[{},{}]={slots}", piece.start, piece.end)
        });
        joined(&words.collect::<Vec<_>>(), "+")
    }

    fn boundary(&self, boundary: &Boundary) -> String {
        format!("{}@{}", boundary.length, boundary.epoch - self.epoch)
    }

    fn job(&self, job: &Job) -> String {
        let leaving = if job.leaving { ":leaving" } else { "" };
        format!("{}>{}{leaving}:{}", tier(job.source), tier(job.target), self.pieces(&job.pieces))
    }

    /// In order; frees between two moves gathered by pool and sorted.
    fn effects(&self, effects: &[Effect]) -> String {
        let mut words = Vec::new();
        let mut frees: Vec<(String, Vec<i32>)> = Vec::new();
        for effect in effects {
            match effect {
                Effect::Free { component, tier: at, slots } => {
                    let pool = format!("{}.{}", self.names[*component], tier(*at));
                    match frees.iter_mut().find(|(name, _)| *name == pool) {
                        Some((_, gathered)) => gathered.extend(slots),
                        None => frees.push((pool, slots.clone())),
                    }
                }
                Effect::Move(job) => {
                    settle(&mut frees, &mut words);
                    words.push(format!("move({})", self.job(job)));
                }
                Effect::Emit(event) => {
                    settle(&mut frees, &mut words);
                    words.push(told(event, &self.names[event.component]));
                }
            }
        }
        settle(&mut frees, &mut words);
        format!("effects={}", joined(&words, ";"))
    }

    /// A short digest of everything observable. Pages come parents first, so a page's length and its own tokens say
    /// where it hangs.
    pub fn digest(&self, snapshot: &Snapshot) -> String {
        let mut seed = Sha256::new();
        for page in &snapshot.pages {
            seed.update(format!("{} {} ", hex(&page.namespace), page.path.len()));
            let own = &page.path[page.path.len() - self.page_tokens..];
            for token in own {
                seed.update(token.to_le_bytes());
            }
            let slots =
                page.slots.iter().map(|(c, at, slot)| format!("{}.{}:{slot}", self.names[*c], tier(*at)));
            let count = |(c, count): &(usize, i64)| format!("{}:{count}", self.names[*c]);
            let locks: Vec<String> = page.locks.iter().map(count).collect();
            let references: Vec<String> = page.references.iter().map(count).collect();
            let slots = slots.collect::<Vec<_>>().join(",");
            seed.update(format!("{slots} {} {}\n", locks.join(","), references.join(",")));
        }
        for m in &snapshot.markers {
            let seqs = format!("{} {} {}", m.start_seq, m.finish_seq, u8::from(m.left));
            seed.update(format!(
                "marker {} {} {} {} {seqs}\n",
                m.session, m.generation, m.frontier, m.alternate
            ));
        }
        let epoch = snapshot.epoch - self.epoch;
        seed.update(format!("leases {} jobs {} epoch {epoch}\n", snapshot.leases, snapshot.jobs));
        hex(&seed.finalize()[..HASH_BYTES])
    }
}

pub fn refused(kind: Kind) -> String {
    let name = match kind {
        Kind::StaleBoundary => "stale_boundary",
        Kind::LeaseReused => "lease_reused",
        Kind::UnknownJob => "unknown_job",
        Kind::UnknownComponent => "unknown_component",
        Kind::Unaligned => "unaligned",
        Kind::BadInsert => "bad_insert",
        Kind::NotResident => "not_resident",
        Kind::InUse => "in_use",
        Kind::BadConfig => "bad_config",
    };
    format!("refused={name}")
}

fn settle(frees: &mut Vec<(String, Vec<i32>)>, words: &mut Vec<String>) {
    frees.sort();
    for (pool, mut slots) in frees.drain(..) {
        slots.sort_unstable();
        words.push(format!("free({pool}:{})", runs(&slots)));
    }
}

/// Kind, tier, component and count, and a digest of hashes (sorted where their order is open), parent and tokens.
fn told(event: &Event, name: &str) -> String {
    let mut hashes = event.hashes.clone();
    let kind = match event.kind {
        EventKind::Stored => "stored",
        EventKind::Removed => "removed",
        EventKind::Cleared => "cleared",
    };
    if event.kind != EventKind::Stored {
        hashes.sort_unstable();
    }
    let mut seed = Sha256::new();
    seed.update(hashes.concat());
    seed.update(b"|");
    seed.update(event.parent.map_or(Vec::new(), Vec::from));
    seed.update(b"|");
    for token in &event.tokens {
        seed.update(token.to_le_bytes());
    }
    let digest = hex(&seed.finalize()[..HASH_BYTES]);
    format!("{kind}({}.{name}:{}:{digest})", tier(event.tier), hashes.len())
}

fn tier(tier: Tier) -> &'static str {
    match tier {
        Tier::Device => "device",
        Tier::Host => "host",
        Tier::External => "external",
    }
}

fn joined(words: &[String], by: &str) -> String {
    if words.is_empty() { "-".into() } else { words.join(by) }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Numbers in their order; `first..last` where at least three follow each other, upward or downward.
pub fn runs(numbers: &[i32]) -> String {
    let mut words = Vec::new();
    let mut at = 0;
    while at < numbers.len() {
        let count = run(&numbers[at..], 1).max(run(&numbers[at..], -1));
        if count < 3 {
            words.push(numbers[at].to_string());
            at += 1;
        } else {
            words.push(format!("{}..{}", numbers[at], numbers[at + count - 1]));
            at += count;
        }
    }
    words.join(",")
}

/// How many numbers from the first on rise (or fall) by one.
fn run(numbers: &[i32], step: i32) -> usize {
    1 + numbers.windows(2).take_while(|pair| pair[1] == pair[0].wrapping_add(step)).count()
}
