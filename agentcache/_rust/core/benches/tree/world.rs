//! A core with the tokens, slots and time that the benchmark feeds it.

use std::time::Instant;

use agentcache_core::{
    Boundary, Config, Inserted, Key, NamespaceId, Offer, Order, OrderBase, Piece, Rule, Tier, TreeCore, Turn,
};

pub const STEPS: [&str; 5] = ["match", "lock", "insert", "unlock", "reference"];

pub struct World {
    pub core: TreeCore,
    pub page: usize,
    pub rules: Vec<Rule>,
    namespace: NamespaceId,
    next_slot: Vec<i32>,
    seed: u64,
    now: i64,
}

impl World {
    pub fn new(components: &str, page: usize) -> Self {
        let names: Vec<String> = components.split('+').map(str::to_owned).collect();
        let rules: Vec<Rule> = names.iter().map(|name| rule(name, page as u32)).collect();
        let config = Config {
            page_tokens: page as u32,
            grid_tokens: page as u32,
            rules: rules.clone(),
            names,
            order: Order::Session,
            base: OrderBase::Lru,
            write_back: false,
            host_tier: false,
            emit_events: false,
            max_markers: 8,
            unclaimed_ns: 0,
            instance: 1,
        };
        let mut core = TreeCore::new(config);
        let namespace = core.namespace([7; 32]);
        let next_slot = vec![0; rules.len()];
        World { core, page, rules, namespace, next_slot, seed: 7, now: 0 }
    }

    pub fn now(&mut self) -> i64 {
        self.now += 1;
        self.now
    }

    pub fn whole(&self, length: usize) -> usize {
        length - length % self.page
    }

    /// Add tokens that no other call gives, but for chance (xorshift).
    pub fn extend(&mut self, tokens: &mut Vec<i32>, count: usize) {
        tokens.extend((0..count).map(|_| {
            self.seed ^= self.seed << 13;
            self.seed ^= self.seed >> 7;
            self.seed ^= self.seed << 17;
            ((self.seed >> 32) % 150_000) as i32
        }));
    }

    pub fn tokens(&mut self, count: usize) -> Vec<i32> {
        let mut tokens = Vec::new();
        self.extend(&mut tokens, count);
        tokens
    }

    pub fn key<'a>(&self, tokens: &'a [i32]) -> Key<'a> {
        Key { tokens, namespace: self.namespace }
    }

    fn slots(&mut self, component: usize, count: usize) -> Vec<i32> {
        let first = self.next_slot[component];
        self.next_slot[component] += count as i32;
        (first..self.next_slot[component]).collect()
    }

    /// Slots for `[start, end)`: all of FULL, the end of each window, the state at the end.
    pub fn offer(&mut self, start: usize, end: usize) -> (Vec<i32>, Vec<Piece>) {
        let full = self.slots(0, (end - start) / self.page);
        let pieces = (1..self.rules.len()).map(|component| {
            let first = match self.rules[component] {
                Rule::Window { tokens } => self.whole(end.saturating_sub(tokens as usize)).max(start),
                _ => end,
            };
            let slots = self.slots(component, ((end - first) / self.page).max(1));
            Piece { component, start: first as i64, end: end as i64, slots }
        });
        (full, pieces.collect())
    }

    pub fn add(&mut self, tokens: &[i32]) -> Inserted {
        let (full, pieces) = self.offer(0, tokens.len());
        let offer = Offer {
            full: &full,
            pieces: &pieces,
            after: None,
            tier: Tier::Device,
            priority: 0,
            full_from: None,
        };
        let (key, now) = (self.key(tokens), self.now());
        self.core.insert(key, &offer, now).expect("a good offer")
    }

    /// One round: `asked` tokens of `context` come in, all of it is published. Nanoseconds of each of `STEPS`.
    pub fn turn(&mut self, session: &str, context: &[i32], asked: usize, number: i64) -> [f64; 5] {
        let (asked, end) = (self.whole(asked), self.whole(context.len()));
        let (ask, whole) = (self.key(&context[..asked]), self.key(&context[..end]));
        let now = self.now();
        let (found, matching) =
            timed(|| self.core.match_prefix(ask, asked as i64, now).expect("whole pages"));
        let at = found.device;
        let (locked, locking) = timed(|| self.core.lock(at, now).expect("on the device"));
        let (full, pieces) = self.offer(at.length as usize, end);
        let after = Some(locked.lease);
        let offer =
            Offer { full: &full, pieces: &pieces, after, tier: Tier::Device, priority: 0, full_from: None };
        let (inserted, inserting) = timed(|| self.core.insert(whole, &offer, now).expect("a good offer"));
        let ((), unlocking) = timed(|| self.core.unlock(locked.lease, None, now).expect("held"));
        assert_eq!(inserted.frontier.length, end as i64, "everything offered votes");
        let turn = turn_of(inserted.frontier, Some(at), number);
        let (_, noting) = timed(|| self.core.reference(session, 1, &turn, now).expect("fresh"));
        [matching, locking, inserting, unlocking, noting]
    }

    /// Publish `context` in turns of `step` tokens; the boundary at its end.
    pub fn grow(&mut self, context: &[i32], step: usize) -> Boundary {
        let mut end = 0_usize;
        for number in 0.. {
            end = end.saturating_add(step).min(context.len());
            self.turn("grown", &context[..end], end, number);
            if end == context.len() {
                break;
            }
        }
        self.core.peek(self.key(context), context.len() as i64).expect("whole pages").device
    }
}

pub fn turn_of(frontier: Boundary, alternate: Option<Boundary>, number: i64) -> Turn {
    let (start_seq, finish_seq) = (2 * number, 2 * number + 1);
    Turn { frontier: Some(frontier), alternate, start_seq, finish_seq, superseded: false }
}

pub fn timed<T>(call: impl FnOnce() -> T) -> (T, f64) {
    let begin = Instant::now();
    let answer = call();
    (answer, begin.elapsed().as_secs_f64() * 1e9)
}

fn rule(name: &str, page: u32) -> Rule {
    match name.strip_prefix("SWA") {
        Some(tokens) => Rule::Window { tokens: tokens.parse().expect("a window's tokens") },
        None if name == "MAMBA" => Rule::Checkpoint { grid_tokens: page },
        None => Rule::Path,
    }
}
