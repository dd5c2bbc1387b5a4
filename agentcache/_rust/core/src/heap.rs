//! An indexed heap of candidates: every node knows its seat, so it moves or leaves in O(log n).

use crate::arena::{Arena, NONE, NodeId};
use crate::values::Tier;

/// The configured order's key (design §7), smallest first. Equal keys are equal ranks but for the tie breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    pub group: u32,
    pub first: i64,
    pub second: i64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    first: i64,
    second: i64,
    group: u32,
    id: NodeId,
}

impl Entry {
    fn rank(&self) -> Rank {
        Rank { group: self.group, first: self.first, second: self.second }
    }
}

/// Which cells a heap orders: their seats are kept there.
#[derive(Clone, Copy, Debug)]
pub struct Seating {
    pub component: usize,
    pub tier: Tier,
    pub class: u8,
}

#[derive(Debug, Default)]
pub struct Heap {
    entries: Vec<Entry>,
}

const ARITY: usize = 4;

impl Heap {
    pub fn top(&self) -> Option<(NodeId, Rank)> {
        self.entries.first().map(|entry| (entry.id, entry.rank()))
    }

    pub fn entries(&self) -> impl Iterator<Item = (NodeId, Rank)> + '_ {
        self.entries.iter().map(|entry| (entry.id, entry.rank()))
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Put a node in, or to where its rank belongs now.
    pub fn put(&mut self, arena: &mut Arena, seating: Seating, id: NodeId, rank: Rank) {
        let entry = Entry { first: rank.first, second: rank.second, group: rank.group, id };
        let seat = arena.cell(id, seating.component).seats[seating.tier as usize];
        let at = if seat == NONE {
            self.entries.push(entry);
            self.entries.len() - 1
        } else {
            self.entries[seat as usize] = entry;
            seat as usize
        };
        let at = self.rise(arena, seating, at);
        self.sink(arena, seating, at);
    }

    pub fn take(&mut self, arena: &mut Arena, seating: Seating, id: NodeId) {
        let seat =
            std::mem::replace(&mut arena.cell_mut(id, seating.component).seats[seating.tier as usize], NONE);
        let at = seat as usize;
        self.entries.swap_remove(at);
        if at < self.entries.len() {
            let at = self.rise(arena, seating, at);
            self.sink(arena, seating, at);
        }
    }

    /// Before: smaller rank, then deeper, then older.
    fn before(arena: &Arena, one: &Entry, other: &Entry) -> bool {
        match one.rank().cmp(&other.rank()) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Greater => false,
            std::cmp::Ordering::Equal => tie(arena, one.id, other.id),
        }
    }

    fn seat(&mut self, arena: &mut Arena, seating: Seating, at: usize, entry: Entry) {
        self.entries[at] = entry;
        let cell = arena.cell_mut(entry.id, seating.component);
        cell.seats[seating.tier as usize] = at as u32;
        cell.classes[seating.tier as usize] = seating.class;
    }

    fn rise(&mut self, arena: &mut Arena, seating: Seating, mut at: usize) -> usize {
        let entry = self.entries[at];
        while at > 0 {
            let above = (at - 1) / ARITY;
            if !Self::before(arena, &entry, &self.entries[above]) {
                break;
            }
            self.seat(arena, seating, at, self.entries[above]);
            at = above;
        }
        self.seat(arena, seating, at, entry);
        at
    }

    fn sink(&mut self, arena: &mut Arena, seating: Seating, mut at: usize) {
        let entry = self.entries[at];
        loop {
            let first = at * ARITY + 1;
            let below = first..(first + ARITY).min(self.entries.len());
            let Some(best) = below.reduce(|best, other| {
                if Self::before(arena, &self.entries[other], &self.entries[best]) { other } else { best }
            }) else {
                break;
            };
            if !Self::before(arena, &self.entries[best], &entry) {
                break;
            }
            self.seat(arena, seating, at, self.entries[best]);
            at = best;
        }
        self.seat(arena, seating, at, entry);
    }
}

/// Between equal ranks: whether `one` goes before `other`, deeper first, then older.
pub fn tie(arena: &Arena, one: NodeId, other: NodeId) -> bool {
    let (one, other) = (arena.node(one), arena.node(other));
    (other.end, one.birth) < (one.end, other.birth)
}
