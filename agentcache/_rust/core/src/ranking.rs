//! Who goes first: candidates for eviction per component and tier, in the configured order (design §7).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::arena::{Cell, FULL, NodeId, ORIGIN, Queued};
use crate::config::{Order, OrderBase};
use crate::heap::{Hall, Heap, Rank, Seats};
use crate::runs::SlotSet;
use crate::trie::Trie;
use crate::values::{Tier, Wait};

/// The classes of `ert`, each with a heap of its own; the other orders have the first only.
pub const RELEASED: u8 = 0;
pub const KEYED: u8 = 1;
pub const AHEAD: u8 = 2;
pub const OVERDUE: u8 = 3;
pub const PENDING: u8 = 4;

const IS_PROTECTED: u8 = 1;
const IS_REFERENCED: u8 = 2;
/// A marked node waits at most until this many others do.
const MARKED_AT_MOST: usize = 512;

/// The copies in one pool: who owns which slot, counts, and the candidates in order.
#[derive(Debug, Default)]
pub struct PoolIndex {
    pub owned: SlotSet,
    pub protected: i64,
    pub referenced: i64,
    pub heaps: [Heap; 5],
    seats: Seats,
    /// When hinted candidates fall due.
    due: BinaryHeap<Reverse<(i64, NodeId)>>,
}

/// A page that may go: its node, where it ends, its rank.
type Standing = (NodeId, u32, Rank);

/// What a piece is worth at a moment, smallest goes first: released, by residual time, or waiting in the queue.
type Urgency = (u8, i128);

impl Trie {
    // -- who changed

    /// Whoever changes a node marks it; marked nodes are ranked again before the next question.
    pub fn mark(&mut self, id: NodeId) {
        if !std::mem::replace(&mut self.arena.node_mut(id).marked, true) {
            self.marked.push(id);
        }
    }

    /// A node whose data changed, and the one above it, which may be a tail now.
    pub fn around(&mut self, id: NodeId) {
        self.mark(id);
        self.mark(self.parent(id));
    }

    /// Take a node out of every index before its pages or copies change.
    pub fn lift(&mut self, id: NodeId) {
        for component in self.components() {
            let width = i64::from(self.width(id, component));
            for tier in [Tier::Device, Tier::Host] {
                self.unseat(id, component, tier);
                let counted = std::mem::take(&mut self.arena.cell_mut(id, component).counted[tier as usize]);
                self.count(component, tier, counted, -width);
            }
        }
        self.mark(id);
    }

    fn count(&mut self, component: usize, tier: Tier, flags: u8, by: i64) {
        let index = &mut self.index[component][tier as usize];
        if flags & IS_PROTECTED != 0 {
            index.protected += by;
        }
        if flags & IS_REFERENCED != 0 {
            index.referenced += by;
        }
    }

    fn unseat(&mut self, id: NodeId, component: usize, tier: Tier) {
        let PoolIndex { heaps, seats, .. } = &mut self.index[component][tier as usize];
        if let Some((class, place)) = seats.get(id) {
            heaps[class].take(&mut Hall { arena: &self.arena, seats, class }, id, place);
        }
    }

    /// End of a call: no more marked nodes wait than a bound.
    pub fn trim_marks(&mut self) {
        if self.marked.len() > MARKED_AT_MOST {
            self.settle();
        }
    }

    /// Rank every marked node again.
    pub fn settle(&mut self) {
        let mut marked = std::mem::take(&mut self.marked);
        for id in marked.drain(..) {
            if std::mem::take(&mut self.arena.node_mut(id).marked)
                && self.arena.node(id).alive
                && id != ORIGIN
            {
                for component in self.components() {
                    for tier in self.config.tiers() {
                        self.place(id, component, *tier);
                    }
                }
            }
        }
        self.marked = marked;
    }

    fn place(&mut self, id: NodeId, component: usize, tier: Tier) {
        let cell = self.arena.cell(id, component);
        let at = tier as usize;
        let flags = if self.has(id, component, tier) {
            (IS_PROTECTED * u8::from(cell.protected(tier))) | (IS_REFERENCED * u8::from(cell.live > 0))
        } else {
            0
        };
        let before = cell.counted[at];
        if flags != before {
            let width = i64::from(self.width(id, component));
            self.count(component, tier, before, -width);
            self.count(component, tier, flags, width);
            self.arena.cell_mut(id, component).counted[at] = flags;
        }
        if !self.candidate(id, component, tier) {
            self.unseat(id, component, tier);
            return;
        }
        let (class, rank) = self.rank(id, component);
        if self.index[component][at].seats.get(id).is_some_and(|(other, _)| other != class as usize) {
            self.unseat(id, component, tier);
        }
        let PoolIndex { heaps, seats, .. } = &mut self.index[component][at];
        heaps[class as usize].put(&mut Hall { arena: &self.arena, seats, class: class as usize }, id, rank);
        if class == AHEAD {
            self.watch(id, component, tier);
        }
    }

    // -- who may go

    /// Whether the last page of this run may be evicted now: resident, not protected and, for FULL, the tail of its path.
    pub fn candidate(&self, id: NodeId, component: usize, tier: Tier) -> bool {
        if id == ORIGIN {
            return false;
        }
        let cell = self.arena.cell(id, component);
        self.has(id, component, tier)
            && !cell.protected(tier)
            && (component != FULL || self.is_tail(id, tier))
    }

    /// Whether a node may be the tail of a path on some tier between calls: others are never ranked for FULL.
    pub fn may_be_tail(&self, id: NodeId) -> bool {
        let node = self.arena.node(id);
        self.config.tiers().iter().any(|tier| node.carrying[*tier as usize] == 0 && self.has(id, FULL, *tier))
    }

    fn is_tail(&self, id: NodeId, tier: Tier) -> bool {
        let node = self.arena.node(id);
        let carried = node.carrying[tier as usize];
        let leaving = if tier == Tier::Device { node.leaving } else { 0 };
        if carried > leaving || (carried > 0 && self.has(id, FULL, Tier::Host)) {
            return false; // a page that has a host copy need not move, so it would leave before its child
        }
        if self.components().any(|component| self.arena.cell(id, component).claims[tier as usize] > 0) {
            return false;
        }
        let last = self.has(id, FULL, Tier::Device) != self.has(id, FULL, Tier::Host);
        !last || node.jobs_below == 0
    }

    // -- in which order

    /// The configured order's class and key of a piece, without tie breaks.
    pub fn rank(&self, id: NodeId, component: usize) -> (u8, Rank) {
        let cell = self.arena.cell(id, component);
        let (class, group, first, second) = match (self.config.order, self.config.base) {
            (Order::Lru, _) => (0, 0, cell.used_ns, 0),
            (Order::Ert, _) => {
                let (class, value) = self.expected(id, component);
                (class, u32::from(class), value, 0)
            }
            (Order::Session, OrderBase::Lru) => (0, wanted(cell, component), cell.used_ns, 0),
            (Order::Session, OrderBase::Lfu) => {
                (0, wanted(cell, component), i64::from(cell.hits), cell.used_ns)
            }
            (Order::Session, OrderBase::Priority) => {
                (0, wanted(cell, component), self.arena.node(id).priority, cell.used_ns)
            }
        };
        (class, Rank { group, first, second })
    }

    /// Expected return: the class of a piece, and a value of which the smallest goes first within it.
    fn expected(&self, id: NodeId, component: usize) -> (u8, i64) {
        let cell = self.arena.cell(id, component);
        if cell.live == 0 {
            return self.nobodys(id, cell);
        }
        if cell.live > 1 {
            let noted = if cell.noted_ns == 0 { cell.used_ns } else { cell.noted_ns };
            return first_queued(cell).unwrap_or((KEYED, noted));
        }
        self.waits[cell.whose as usize].map_or((KEYED, cell.used_ns), |wait| self.alone(wait))
    }

    /// The piece of one session goes by what that session is doing.
    fn alone(&self, wait: Wait) -> (u8, i64) {
        match wait {
            Wait::Pending { seq, eta_ns } => queued(seq, eta_ns),
            Wait::Running { key_ns } | Wait::Idle { key_ns, hint_ns: None, .. } => (KEYED, key_ns),
            Wait::Idle { since_ns, hint_ns: Some(hint), .. } => {
                if self.ranked_ns < falls_due(since_ns, hint) {
                    (AHEAD, !since_ns.saturating_add(hint))
                } else {
                    (OVERDUE, since_ns)
                }
            }
        }
    }

    /// Released, or left on a session's way and never matched since; else by its last use. Of what lies where no session
    /// is or was, less is known than of what sessions share.
    fn nobodys(&self, id: NodeId, cell: &Cell) -> (u8, i64) {
        let page = self.arena.cell(id, FULL);
        let on_the_way = (page.live == 1 || page.released) && cell.hits == 0;
        if cell.released || on_the_way {
            return (RELEASED, cell.used_ns);
        }
        if page.live > 0 || page.released {
            return (KEYED, cell.used_ns);
        }
        (KEYED, cell.used_ns.saturating_sub(self.config.unclaimed_ns))
    }

    /// Whether the last page of a FULL run has a key of its own: a queued one of several sessions ends there.
    pub fn tip_stands_apart(&self, id: NodeId) -> bool {
        let cell = self.arena.cell(id, FULL);
        self.config.order == Order::Ert && cell.live > 1 && cell.pending.is_some()
    }

    fn watch(&mut self, id: NodeId, component: usize, tier: Tier) {
        let cell = self.arena.cell(id, component);
        let alone = if cell.live == 1 { self.waits[cell.whose as usize] } else { None };
        let Some(Wait::Idle { since_ns, hint_ns: Some(hint), .. }) = alone else { return };
        let index = &mut self.index[component][tier as usize];
        index.due.push(Reverse((falls_due(since_ns, hint), id)));
        if index.due.len() > 64 + 4 * index.heaps[AHEAD as usize].len() {
            let ahead: Vec<NodeId> = index.heaps[AHEAD as usize].entries().map(|(id, _)| id).collect();
            index.due.clear();
            for id in ahead {
                self.watch(id, component, tier);
            }
        }
    }

    /// Time goes on, and never back: hinted pieces that fall due until `now_ns` are ranked again.
    pub fn advance(&mut self, now_ns: i64) {
        if self.config.order != Order::Ert {
            return;
        }
        self.ranked_ns = self.ranked_ns.max(now_ns);
        for component in self.components() {
            for tier in self.config.tiers() {
                let due = &mut self.index[component][*tier as usize].due;
                let mut fallen = Vec::new();
                while due.peek().is_some_and(|Reverse((at, _))| *at <= self.ranked_ns) {
                    fallen.extend(due.pop().map(|Reverse((_, id))| id));
                }
                for id in fallen {
                    if self.arena.node(id).alive {
                        self.mark(id);
                    }
                }
            }
        }
    }

    /// What is lowest ranked at `now_ns`; None when nothing may go.
    pub fn best(&mut self, component: usize, tier: Tier, now_ns: i64) -> Option<NodeId> {
        self.advance(now_ns);
        self.settle();
        let heaps = &self.index[component][tier as usize].heaps;
        if self.config.order != Order::Ert {
            return heaps[0].top().map(|(id, _)| id);
        }
        let tops = heaps.iter().filter_map(Heap::top).map(|(id, rank)| (id, self.end(id), rank));
        tops.reduce(|best, other| if self.ahead_of(other, best) { other } else { best }).map(|(id, ..)| id)
    }

    /// How many of the last pages of the lowest ranked run go before all else, one after the other.
    pub fn leads_by(&self, lowest: NodeId, component: usize, tier: Tier) -> i64 {
        if self.tip_stands_apart(lowest) {
            return 1;
        }
        let own = self.rank(lowest, component).1;
        let behind = |rank: Rank| {
            if self.config.order == Order::Ert {
                urgency(own, self.ranked_ns) < urgency(rank, self.ranked_ns)
            } else {
                own < rank
            }
        };
        let mut firsts = self.index[component][tier as usize].heaps.iter().flat_map(Heap::firsts);
        let leads = firsts.all(|(id, rank)| id == lowest || behind(rank));
        if leads { i64::from(self.width(lowest, component)) } else { 1 }
    }

    /// Whether the last page of `one` goes before the page of another node that ends at `end`, at the time of the running
    /// call, ties included.
    pub fn goes_before(&self, one: NodeId, (other, end): (NodeId, u32), component: usize) -> bool {
        let rank = |id: NodeId| self.rank(id, component).1;
        self.ahead_of((one, self.end(one), rank(one)), (other, end, rank(other)))
    }

    /// Whether a piece goes before all that a session which waits so has for itself: it is expected back later. Orders
    /// that know no waits say so of what no session references.
    pub fn expected_after(&self, wait: Wait, id: NodeId, component: usize) -> bool {
        if self.config.order != Order::Ert {
            return self.arena.cell(id, component).live == 0;
        }
        let (class, first) = self.alone(wait);
        let promised = Rank { group: u32::from(class), first, second: 0 };
        urgency(self.rank(id, component).1, self.ranked_ns) < urgency(promised, self.ranked_ns)
    }

    fn ahead_of(&self, one: Standing, other: Standing) -> bool {
        let order = if self.config.order == Order::Ert {
            urgency(one.2, self.ranked_ns).cmp(&urgency(other.2, self.ranked_ns))
        } else {
            one.2.cmp(&other.2)
        };
        let tie = |at: Standing| (Reverse(at.1), self.arena.node(at.0).birth); // deeper first, then older
        order.then_with(|| tie(one).cmp(&tie(other))).is_lt()
    }

    /// Candidates with their class and rank as the indexes have them, for `check`.
    pub fn seated(&self, component: usize, tier: Tier) -> impl Iterator<Item = (NodeId, u8, Rank)> + '_ {
        let heaps = self.index[component][tier as usize].heaps.iter().zip(0u8..);
        heaps.flat_map(|(heap, class)| heap.entries().map(move |(id, rank)| (id, class, rank)))
    }
}

/// The group of the `session` order: unreferenced, then by how many sessions (FULL), then the rest.
fn wanted(cell: &Cell, component: usize) -> u32 {
    let count = if component == FULL { cell.live } else { 0 };
    if cell.live > 0 { 1 << 31 | count } else { 0 }
}

/// Of several sessions that want a piece, the place of the queued one that needs it first.
fn first_queued(cell: &Cell) -> Option<(u8, i64)> {
    let (Reverse(class), Reverse(value), _) = cell.pending.as_ref()?.first()?;
    Some((*class, *value))
}

/// A session's place in the queue, if it is in one.
pub fn place_in_queue(wait: Option<Wait>, session: u32) -> Option<Queued> {
    let Some(Wait::Pending { seq, eta_ns }) = wait else { return None };
    let (class, value) = queued(seq, eta_ns);
    Some((Reverse(class), Reverse(value), session))
}

/// A queued request's class and key: by estimated start where there is one, else the latest goes first. `!` turns an
/// order around as negation does, for every number.
fn queued(seq: i64, eta_ns: Option<i64>) -> (u8, i64) {
    eta_ns.map_or((PENDING, !seq), |eta| (AHEAD, !eta))
}

/// When a hint stops promising more than a quarter of the time that has passed: the first t with 5 (t - since) >= 4 hint.
fn falls_due(since_ns: i64, hint_ns: i64) -> i64 {
    let late = (i128::from(hint_ns) * 4 + 4).div_euclid(5);
    since_ns.saturating_add(late as i64)
}

/// What a key of `ert` is worth at a moment: four times the residual time, the longest first.
fn urgency(rank: Rank, now_ns: i64) -> Urgency {
    let (value, now) = (i128::from(rank.first), i128::from(now_ns));
    match rank.group as u8 {
        RELEASED => (0, value),
        KEYED => (1, 4 * (value - now)),
        AHEAD => (1, 4 * (value + 1 + now)), // the return time is `!value`
        OVERDUE => (1, value - now),
        _ => (2, value),
    }
}
