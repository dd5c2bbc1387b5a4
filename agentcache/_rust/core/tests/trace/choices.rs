//! Bytes as choices, a core's shape among them, and the pools that a history draws from.

use std::collections::BTreeMap;

use agentcache_core::{Config, Order, OrderBase, Piece, Rule, Tier};

/// Choices, one a byte; 0 when they are used up.
pub struct Choices<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Choices<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Choices { data, at: 0 }
    }

    pub fn over(&self) -> bool {
        self.at >= self.data.len()
    }

    pub fn byte(&mut self) -> u8 {
        self.at += 1;
        self.data.get(self.at - 1).copied().unwrap_or(0)
    }

    /// One of the numbers below `count`, which is not 0.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }

    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// Any shape of a core.
pub fn config(choices: &mut Choices<'_>) -> Config {
    let page_tokens = choices.one(&[1, 1, 2, 4]);
    let grid_tokens = page_tokens * choices.one(&[1, 1, 2, 3]);
    let mut rules = vec![Rule::Path];
    for _ in 0..choices.below(4) {
        let window = Rule::Window { tokens: 1 + u32::from(choices.byte() % 24) };
        rules.push(choices.one(&[window, window, Rule::Checkpoint { grid_tokens: page_tokens * 2 }]));
    }
    let host = choices.below(3);
    Config {
        page_tokens,
        grid_tokens,
        names: (0..rules.len()).map(|number| format!("C{number}")).collect(),
        rules,
        order: choices.one(&[Order::Lru, Order::Session, Order::Ert]),
        base: choices.one(&[OrderBase::Lru, OrderBase::Lfu, OrderBase::Priority]),
        write_back: host == 2,
        host_tier: host > 0,
        emit_events: choices.below(4) == 0,
        max_markers: 1 + choices.below(4),
        unclaimed_ns: choices.one(&[0, 0, 7, 60]),
        instance: 1,
    }
}

/// The free slots of every pool.
pub struct Stock {
    sizes: [i32; 2],
    free: BTreeMap<(usize, Tier), Vec<i32>>,
}

impl Stock {
    pub fn new(config: &Config, sizes: [i32; 2]) -> Self {
        let pools =
            (0..config.rules.len()).flat_map(|name| config.tiers().iter().map(move |tier| (name, *tier)));
        let free = pools.map(|pool| (pool, (0..sizes[pool.1 as usize]).collect())).collect();
        Stock { sizes, free }
    }

    pub fn free(&self, component: usize, tier: Tier) -> usize {
        self.free.get(&(component, tier)).map_or(0, Vec::len)
    }

    /// Of each component the free slots on the host, or less.
    pub fn room(&self, choices: &mut Choices<'_>) -> Vec<i64> {
        let most = choices.one(&[i64::MAX, i64::MAX, 1, 0]);
        let names = 0..1 + self.free.keys().map(|pool| pool.0).max().unwrap_or(0);
        names.map(|name| most.min(self.free(name, Tier::Host) as i64)).collect()
    }

    /// Slots that are not free.
    pub fn taken(&self, component: usize, tier: Tier) -> i64 {
        i64::from(self.sizes[tier as usize]) - self.free(component, tier) as i64
    }

    pub fn take(&mut self, component: usize, tier: Tier) -> Option<i32> {
        self.free.get_mut(&(component, tier))?.pop()
    }

    pub fn give_back(&mut self, component: usize, tier: Tier, slots: &[i32]) {
        let free = self.free.get_mut(&(component, tier)).expect("a pool of the tree");
        assert!(slots.iter().all(|slot| !free.contains(slot)), "freed twice");
        free.extend(slots);
    }

    pub fn return_pieces(&mut self, pieces: &[Piece], tier: Tier) {
        for piece in pieces {
            self.give_back(piece.component, tier, &piece.slots);
        }
    }

    pub fn is_full(&self) -> bool {
        self.free.keys().all(|(component, tier)| self.taken(*component, *tier) == 0)
    }
}
