//! The boundary vote on runs: which ends of a path every component accepts, on device or host.

use crate::arena::{FULL, NodeId, ORIGIN};
use crate::config::Rule;
use crate::trie::Trie;

impl Trie {
    pub fn anywhere(&self, id: NodeId, component: usize) -> bool {
        let node = self.arena.node(id);
        (node.resident[0] | node.resident[1]) >> component & 1 == 1
    }

    /// From where a window's data lie without a gap up to the end of `id`; not followed above `enough`.
    /// The end itself where `id` has none.
    pub fn run_start(&self, id: NodeId, component: usize, enough: u32) -> u32 {
        let (mut at, mut start) = (id, self.end(id));
        while at != ORIGIN && start > enough && self.anywhere(at, component) {
            start = self.arena.node(at).start;
            at = self.parent(at);
        }
        start
    }

    /// Whether the boundary at `length`, in the pages of `id`, votes. FULL is at every node.
    pub fn votes(&self, id: NodeId, length: u32) -> bool {
        length > 0
            && length % self.config.grid_tokens == 0
            && self.components().rev().all(|component| self.accepts(id, length, component))
    }

    fn accepts(&self, id: NodeId, length: u32, component: usize) -> bool {
        match self.config.rules[component] {
            Rule::Path => true,
            Rule::Checkpoint { .. } => self.end(id) == length && self.anywhere(id, component),
            Rule::Window { tokens } => {
                let need = length.saturating_sub(tokens);
                self.anywhere(id, component) && self.run_start(id, component, need) <= need
            }
        }
    }

    /// The deepest boundary that votes at or above `length`, in the pages of `id`; the origin where none does.
    pub fn deepest_votable(&self, id: NodeId, length: u32) -> (NodeId, u32) {
        let (mut at, mut end) = (id, length);
        while at != ORIGIN {
            let start = self.arena.node(at).start;
            let candidate = self.floor_grid(end);
            if candidate > start && self.votes(at, candidate) {
                return (at, candidate);
            }
            // In a run acceptance only grows with the position: if its deepest candidate fails, all do.
            (at, end) = (self.parent(at), start);
        }
        (ORIGIN, 0)
    }

    /// The shallowest boundary beyond `after` within the pages of `id` that votes.
    pub fn first_votable(&self, id: NodeId, after: u32) -> Option<u32> {
        let node = self.arena.node(id);
        let mut from = after.max(node.start) + self.config.page_tokens;
        for component in self.components().filter(|component| *component != FULL) {
            from = from.max(match self.config.rules[component] {
                Rule::Path => 0,
                Rule::Checkpoint { .. } => node.end,
                Rule::Window { tokens } => {
                    let enough = (node.start + self.config.page_tokens).saturating_sub(tokens);
                    let start = self.run_start(id, component, enough);
                    if start <= enough { 0 } else { start.saturating_add(tokens) }
                }
            });
        }
        let grid = self.config.grid_tokens;
        let found = from.checked_next_multiple_of(grid)?;
        (found <= node.end && self.votes(id, found)).then_some(found)
    }
}
