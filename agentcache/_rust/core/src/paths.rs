//! Positions on paths: finding them, and cutting runs there.

use crate::arena::{Cell, FULL, NodeId, NodeKey, ORIGIN};
use crate::error::{Error, Kind, Result};
use crate::trie::Trie;
use crate::values::{Boundary, Key, NodeRef, Tier};

impl Trie {
    // -- finding

    /// The node whose pages hold `boundary`, and its length there. Errors: `StaleBoundary`.
    pub fn find(&self, boundary: &Boundary) -> Result<(NodeId, u32)> {
        let stale = || {
            Error::new(
                Kind::StaleBoundary,
                "data was dropped since this boundary was issued; match again and lock before you evict",
            )
            .fact("issued", boundary.epoch)
            .fact("now", self.epoch)
        };
        let (instance, generation) = (boundary.node.generation >> 32, boundary.node.generation as u32);
        let ours = boundary.epoch == self.epoch && instance == i64::from(self.config.instance);
        let (id, issued) = (boundary.node.index as u32, (boundary.node.index >> 32) as u32);
        if !ours || !self.arena.holds(NodeKey { id, generation }) {
            return Err(stale());
        }
        let length = u32::try_from(boundary.length).map_err(|_| stale())?;
        if length > issued || issued > self.end(id) || length % self.config.page_tokens != 0 {
            return Err(stale());
        }
        Ok((self.holder(id, length), length))
    }

    /// The node at or above `id` whose pages hold the position `length`.
    pub fn holder(&self, id: NodeId, length: u32) -> NodeId {
        let mut at = id;
        while at != ORIGIN && self.arena.node(at).start >= length {
            at = self.parent(at);
        }
        at
    }

    /// A handle; it carries the length that it was issued for, beyond which it is good for nothing, however long the run.
    pub fn boundary(&self, id: NodeId, length: u32) -> Boundary {
        let generation = i64::from(self.config.instance) << 32 | i64::from(self.arena.node(id).generation);
        Boundary {
            node: NodeRef { index: i64::from(length) << 32 | i64::from(id), generation },
            length: i64::from(length),
            epoch: self.epoch,
        }
    }

    /// Whether the path to `upper` begins the path to `lower`.
    pub fn is_prefix(&self, upper: NodeId, lower: NodeId) -> bool {
        let end = self.end(upper);
        let mut at = lower;
        while self.end(at) > end {
            at = self.parent(at);
        }
        at == upper
    }

    /// The child that goes on with `key` at `from`, and how many of its tokens agree (whole pages, up to `cap`).
    pub fn descend(&self, at: NodeId, key: &Key<'_>, from: u32, cap: u32) -> Option<(NodeId, u32)> {
        let page = self.config.page_tokens;
        if from + page > cap {
            return None;
        }
        let rest = &key.tokens[from as usize..cap as usize];
        let child = self.arena.child(at, key.namespace, &rest[..page as usize])?;
        let edge = self.arena.node(child).edge();
        let count = edge.len().min(rest.len());
        if edge[..count] == rest[..count] {
            return Some((child, count as u32));
        }
        let agree = edge.iter().zip(rest).take_while(|(one, other)| one == other).count() as u32;
        Some((child, self.floor_page(agree)))
    }

    // -- cutting

    /// The node at or above `id` that ends exactly at `length`, cut there if need be.
    pub fn cut(&mut self, id: NodeId, length: u32) -> NodeId {
        let at = self.holder(id, length);
        if at == ORIGIN || self.end(at) == length {
            return at;
        }
        self.split(at, length)
    }

    /// Cut a node at `at`; answers the upper half. Counts and stamps hold for both halves, a state stays at its end.
    fn split(&mut self, id: NodeId, at: u32) -> NodeId {
        self.lift(id);
        let (start, end) = (self.arena.node(id).start, self.end(id));
        let upper = self.arena.cut(id, at);
        let page = self.config.page_tokens;
        let (above, below) = ((at - start) / page, (end - at) / page);
        for component in self.components() {
            if self.is_state(component) {
                continue;
            }
            let lower = self.arena.cell_mut(id, component);
            let slots = lower.slots.each_mut().map(|slots| slots.cut(above, below));
            // Branches end where the lower half does.
            let pending = if component == FULL { None } else { lower.pending.clone() };
            let cell = Cell { slots, pending, ..counts(lower) };
            *self.arena.cell_mut(upper, component) = cell;
        }
        for tier in [Tier::Device, Tier::Host] {
            let paged = self.arena.node(id).resident[tier as usize] & !self.states;
            self.arena.node_mut(upper).resident[tier as usize] = paged;
            let carries = self.has(id, FULL, tier);
            self.arena.node_mut(upper).carrying[tier as usize] = u32::from(carries);
        }
        let going = self.arena.node(id).going;
        self.arena.node_mut(upper).going = going;
        self.arena.node_mut(upper).leaving = u32::from(going);
        self.mark(upper);
        upper
    }

    /// The nodes of a component's region `[start, boundary)` up from the node that ends at the boundary, deepest first;
    /// cut where the region begins. A state is at the boundary's own node.
    pub fn region(&mut self, component: usize, id: NodeId, into: &mut Vec<NodeId>) {
        into.clear();
        if id == ORIGIN {
            return;
        }
        if self.is_state(component) {
            into.push(id);
            return;
        }
        let start = self.region_start(component, self.end(id));
        self.span(id, start, into);
    }

    /// Cut the path where the regions of the boundary at the end of `id` begin.
    pub fn cut_regions(&mut self, id: NodeId) {
        let mut nodes = Vec::new();
        for component in self.components().filter(|component| *component != FULL) {
            self.region(component, id, &mut nodes);
        }
    }

    /// The nodes from `start` to the end of `id`, deepest first; cut at `start`.
    pub fn span(&mut self, id: NodeId, start: u32, into: &mut Vec<NodeId>) {
        into.clear();
        let mut at = id;
        while at != ORIGIN && self.end(at) > start {
            if self.arena.node(at).start < start {
                self.cut(at, start);
            }
            into.push(at);
            at = self.parent(at);
        }
    }
}

/// The counts and stamps of a cell that hold for every page of its run; nothing of the indexes.
fn counts(cell: &Cell) -> Cell {
    Cell {
        claims: cell.claims,
        locks: cell.locks,
        live: cell.live,
        whose: cell.whose,
        hits: cell.hits,
        used_ns: cell.used_ns,
        noted_ns: cell.noted_ns,
        touched: cell.touched,
        released: cell.released,
        ..Cell::default()
    }
}
