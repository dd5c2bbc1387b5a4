//! Insert: who owns each offered slot, and how deep the path now votes.

use std::sync::Arc;

use crate::arena::{FULL, NodeId};
use crate::changes::Changes;
use crate::error::Result;
use crate::leases::LeaseTable;
use crate::offers::{Checked, Step, checked};
use crate::pieces::Pieces;
use crate::runs::{Slots, Tokens};
use crate::trie::Trie;
use crate::values::{Inserted, Key, Offer};

/// One insert that is under way.
struct Insertion<'a> {
    trie: &'a mut Trie,
    offer: Checked<'a>,
    now_ns: i64,
    taken: Pieces,
    changes: Changes,
}

/// `Lookup.insert` of the contract.
pub fn insert<'a>(
    trie: &'a mut Trie,
    leases: &LeaseTable,
    key: Key<'a>,
    request: &Offer<'a>,
    now_ns: i64,
) -> Result<Inserted> {
    let offer = checked(trie, leases, key, request)?;
    let steps = offer.walk(trie);
    let grounded = offer.has_ground(trie, &steps);
    let taken = Pieces::new(trie.components().len());
    let mut under_way = Insertion { trie, offer, now_ns, taken, changes: Changes::default() };
    let (deepest, frontier) =
        if grounded { under_way.apply(&steps) } else { under_way.offer.standing(under_way.trie, &steps) };
    let kept = under_way.kept(if grounded { frontier } else { 0 });
    let Insertion { trie, taken, changes, .. } = under_way;
    let node = trie.cut(deepest, frontier);
    trie.touch(node, now_ns, false);
    if request.priority != 0 {
        trie.raise_priority(node, request.priority);
    }
    trie.trim_marks();
    let effects = changes.effects(trie.config.emit_events, trie.config.tiers());
    Ok(Inserted {
        frontier: trie.boundary(node, frontier),
        taken: taken.build(),
        kept: kept.build(),
        effects,
    })
}

impl Insertion<'_> {
    /// Take what is missing up to the frontier; answers the deepest node of the path so far, and the frontier.
    fn apply(&mut self, steps: &[Step]) -> Step {
        let frontier = self.offer.frontier(self.trie, steps);
        let (mut deepest, mut reached) = (self.offer.base, self.offer.from);
        for (id, agreed) in steps {
            if reached >= frontier {
                return (deepest, frontier);
            }
            for at in self.divide(*id, (*agreed).min(frontier)) {
                self.settle(at);
                deepest = at;
            }
            reached = self.trie.end(deepest);
        }
        (if reached < frontier { self.extend(deepest, frontier) } else { deepest }, frontier)
    }

    /// Cut a stored node so that each part lies wholly inside or outside of what it takes from the offer.
    fn divide(&mut self, id: NodeId, until: u32) -> Vec<NodeId> {
        let start = self.trie.arena.node(id).start;
        let mut bounds = vec![until];
        for component in self.trie.components() {
            if !self.trie.is_state(component) && self.trie.has(id, component, self.offer.tier) {
                continue; // all of it is a duplicate
            }
            bounds.extend(self.bounds(component, start, until));
        }
        bounds.retain(|at| start < *at && *at <= until);
        bounds.sort_unstable();
        bounds.dedup();
        bounds.into_iter().map(|at| self.trie.cut(id, at)).collect()
    }

    /// Where what is offered of a component begins and ends; of states only where they lie.
    fn bounds(&self, component: usize, from: u32, to: u32) -> impl Iterator<Item = u32> + '_ {
        let state = self.trie.is_state(component);
        let pieces = &self.offer.pieces[component];
        let first = pieces.partition_point(|at| at.end <= from);
        pieces[first..]
            .iter()
            .take_while(move |at| at.start < to)
            .flat_map(move |at| [if state { at.end } else { at.start }, at.end])
    }

    /// Take what a stored node lacks on the offer's tier; present copies win and the incoming slots are freed.
    fn settle(&mut self, id: NodeId) {
        for component in self.trie.components() {
            let (start, end) = self.extent(id, component);
            let slots = self.offered(component, start, end);
            if slots.is_empty() {
                continue;
            }
            if self.trie.has(id, component, self.offer.tier) {
                self.changes.free(component, self.offer.tier, &slots);
            } else {
                self.take(id, component, Slots::new(&slots));
            }
        }
    }

    /// The tokens of a node that a component's data there stand for; of a state its page.
    fn extent(&self, id: NodeId, component: usize) -> (u32, u32) {
        let node = self.trie.arena.node(id);
        let state = self.trie.is_state(component);
        (if state { node.end - self.trie.config.page_tokens } else { node.start }, node.end)
    }

    /// What is offered for `[start, end)`.
    fn offered(&self, component: usize, start: u32, end: u32) -> Vec<i32> {
        let page = self.trie.config.page_tokens;
        let pieces = &self.offer.pieces[component];
        let first = pieces.partition_point(|at| at.end <= start);
        let inside = pieces[first..].iter().take_while(|at| at.start < end);
        let slots = inside.flat_map(|at| {
            let from = (start.max(at.start) - at.start) / page;
            let to = (end.min(at.end) - at.start) / page;
            at.slots[from as usize..to as usize].iter().copied()
        });
        slots.collect()
    }

    fn take(&mut self, id: NodeId, component: usize, slots: Slots) {
        self.trie.attach(id, component, self.offer.tier, slots, &mut self.changes);
        let cell = self.trie.arena.cell_mut(id, component);
        cell.used_ns = self.now_ns;
        cell.released = false;
        let (start, end) = self.extent(id, component);
        let range = if self.trie.is_state(component) { (end, end) } else { (start, end) };
        let slots = self.trie.slots(id, component, self.offer.tier);
        self.taken.add(component, range, slots);
    }

    /// New runs below `parent` up to the frontier, over one copy of the new tokens and FULL slots.
    fn extend(&mut self, parent: NodeId, frontier: u32) -> NodeId {
        let (from, page) = (self.trie.end(parent), self.trie.config.page_tokens);
        let tokens = Tokens::new(&self.offer.key.tokens[from as usize..frontier as usize]);
        let full: Arc<[i32]> = self.offered(FULL, from, frontier).into();
        let mut bounds: Vec<u32> = Vec::from([frontier]);
        for component in self.trie.components().filter(|component| *component != FULL) {
            bounds.extend(self.bounds(component, from, frontier).filter(|at| from < *at && *at < frontier));
        }
        bounds.sort_unstable();
        bounds.dedup();
        self.trie.births += 1;
        let (mut above, mut start) = (parent, from);
        for end in bounds {
            let id = self.trie.grow(above, self.offer.key.namespace, tokens.after(start - from), end);
            self.take(id, FULL, Slots::shared(&full, (start - from) / page, (end - start) / page));
            for component in self.trie.components().filter(|component| *component != FULL) {
                let (first, last) = self.extent(id, component);
                let slots = self.offered(component, first, last);
                if !slots.is_empty() {
                    self.take(id, component, Slots::new(&slots));
                }
            }
            (above, start) = (id, end);
        }
        above
    }

    /// What stays with the caller: everything beyond the frontier.
    fn kept(&self, frontier: u32) -> Pieces {
        let page = self.trie.config.page_tokens;
        let mut kept = Pieces::new(self.trie.components().len());
        for component in self.trie.components() {
            let state = self.trie.is_state(component);
            for at in self.offer.pieces[component].iter().filter(|at| at.end > frontier) {
                let start = at.start.max(frontier);
                let slots = &at.slots[((start - at.start) / page) as usize..];
                let range = if state { (at.end, at.end) } else { (start, at.end) };
                kept.add(component, range, slots);
            }
        }
        kept
    }
}
