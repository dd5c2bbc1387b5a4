//! What markers reference: the regions of their boundaries, each position once.

use crate::arena::{FULL, NodeId, ORIGIN};
use crate::trie::Trie;
use crate::values::{Held, TREE_TIERS};

pub const NOT_LEFT: i64 = 0;

/// A boundary of a marker: the deepest node of its path that is there, and the length it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    pub node: NodeId,
    pub length: u32,
}

/// One branch of a session. `number` stays when the marker moves forward along its branch.
#[derive(Clone, Copy, Debug)]
pub struct Draft {
    pub number: i64,
    pub generation: i64,
    pub frontier: Spot,
    pub alternate: Option<Spot>,
    pub start_seq: i64,
    pub finish_seq: i64,
    /// The number of the marker whose branch the session went on with.
    pub left_for: i64,
}

impl Draft {
    pub fn is_left(&self) -> bool {
        self.left_for != NOT_LEFT
    }

    pub fn spots(&self) -> impl Iterator<Item = Spot> {
        [Some(self.frontier), self.alternate].into_iter().flatten()
    }
}

/// Components and nodes, each once.
pub type Positions = Vec<(usize, NodeId)>;

/// Tells apart what is referenced before and after a change, by stamps on the cells.
#[derive(Debug, Default)]
pub struct Coverage {
    stamps: Vec<u32>,
    round: u32,
}

impl Coverage {
    /// As after nearly all rounds that a counter has, for the test of what comes then.
    #[cfg(test)]
    pub fn late() -> Self {
        Coverage { stamps: Vec::new(), round: u32::MAX - 10 }
    }

    /// Positions referenced before and not after, and after and not before. Paths were cut where regions begin.
    pub fn difference(&mut self, trie: &Trie, before: &[Draft], after: &[Draft]) -> (Positions, Positions) {
        self.stamps.resize(trie.arena.cell_count(), 0);
        if self.round > u32::MAX - 5 {
            self.stamps.fill(0);
            self.round = 0;
        }
        self.round += 3;
        let (wanted, both, old) = (self.round, self.round + 1, self.round + 2);
        let (mut gone, mut new) = (Vec::new(), Vec::new());
        for component in trie.components() {
            let from = new.len();
            if component == FULL && grown(trie, before, after, &mut new) {
                continue;
            }
            for spot in after.iter().flat_map(Draft::spots) {
                walk(trie, component, spot, |id| {
                    let stamp = &mut self.stamps[trie.arena.cell_number(id, component)];
                    if *stamp == wanted {
                        return component != FULL; // the path above was seen
                    }
                    *stamp = wanted;
                    new.push((component, id));
                    true
                });
            }
            for spot in before.iter().flat_map(Draft::spots) {
                walk(trie, component, spot, |id| {
                    let stamp = &mut self.stamps[trie.arena.cell_number(id, component)];
                    if *stamp == both || *stamp == old {
                        return component != FULL;
                    }
                    if *stamp == wanted {
                        *stamp = both;
                    } else {
                        *stamp = old;
                        gone.push((component, id));
                    }
                    true
                });
            }
            let mut kept = from;
            for at in from..new.len() {
                if self.stamps[trie.arena.cell_number(new[at].1, component)] == wanted {
                    new[kept] = new[at];
                    kept += 1;
                }
            }
            new.truncate(kept);
        }
        (gone, new)
    }
}

/// Visit the nodes of a component's region at a spot, deepest first, while the visitor says so. Cuts nothing: the
/// path was cut where the region begins when the marker was put.
fn walk(trie: &Trie, component: usize, spot: Spot, mut visit: impl FnMut(NodeId) -> bool) {
    if trie.is_state(component) {
        if trie.end(spot.node) == spot.length {
            visit(spot.node);
        }
        return;
    }
    let start = trie.region_start(component, spot.length);
    let mut at = spot.node;
    while at != ORIGIN && trie.end(at) > start && visit(at) {
        at = trie.parent(at);
    }
}

/// The common case: one branch that only grew. FULL then changes by the nodes below the old frontier alone.
fn grown(trie: &Trie, before: &[Draft], after: &[Draft], new: &mut Positions) -> bool {
    let ([old], [next]) = (before, after) else { return false };
    let on_path = |draft: &Draft| {
        draft.alternate.is_none_or(|spot| {
            spot.length <= draft.frontier.length && trie.is_prefix(spot.node, draft.frontier.node)
        })
    };
    let whole = trie.end(old.frontier.node) == old.frontier.length;
    if !whole || !trie.is_prefix(old.frontier.node, next.frontier.node) || !on_path(old) || !on_path(next) {
        return false;
    }
    let mut at = next.frontier.node;
    while at != old.frontier.node {
        new.push((FULL, at));
        at = trie.parent(at);
    }
    true
}

/// What lies at these positions, per component and tier, components without data left out. `own`: how many references
/// to each are the holder's, and do not make it shared.
pub fn held(trie: &Trie, positions: &Positions, own: u32) -> Vec<Held> {
    let mut found = Vec::new();
    for component in trie.components() {
        for tier in TREE_TIERS {
            let (mut slots, mut shared_slots) = (0, 0);
            for at in positions.iter().filter(|at| at.0 == component && trie.has(at.1, component, tier)) {
                let width = i64::from(trie.width(at.1, component));
                slots += width;
                shared_slots += if trie.arena.cell(at.1, component).live > own { width } else { 0 };
            }
            let tokens =
                if trie.is_state(component) { 0 } else { slots * i64::from(trie.config.page_tokens) };
            if slots > 0 {
                found.push(Held { component, tier, tokens, slots, shared_slots });
            }
        }
    }
    found
}
