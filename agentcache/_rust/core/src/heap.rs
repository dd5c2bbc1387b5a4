//! An indexed heap of candidates: every node's seat is known, so it moves or leaves in O(log n).

use crate::arena::{Arena, NONE, NodeId};

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

/// Where each node stands in the heaps of one pool: which heap, and its place there.
#[derive(Debug, Default)]
pub struct Seats(Vec<u32>);

const PLACE_BITS: u32 = 29;

impl Seats {
    /// The heap and place of a node that has a seat.
    pub fn get(&self, id: NodeId) -> Option<(usize, usize)> {
        let seat = self.0.get(id as usize).copied().filter(|seat| *seat != NONE)?;
        Some(((seat >> PLACE_BITS) as usize, (seat & ((1 << PLACE_BITS) - 1)) as usize))
    }

    fn put(&mut self, id: NodeId, class: usize, place: usize) {
        if self.0.len() <= id as usize {
            self.0.resize(id as usize + 1, NONE);
        }
        self.0[id as usize] = (class as u32) << PLACE_BITS | place as u32;
    }

    fn clear(&mut self, id: NodeId) {
        self.0[id as usize] = NONE;
    }
}

/// A heap's surroundings: nodes for ties, the seats that it keeps, and which heap it is.
pub struct Hall<'a> {
    pub arena: &'a Arena,
    pub seats: &'a mut Seats,
    pub class: usize,
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

    /// The top and those right below it, among which is the next one.
    pub fn firsts(&self) -> impl Iterator<Item = (NodeId, Rank)> + '_ {
        self.entries().take(1 + ARITY)
    }

    pub fn entries(&self) -> impl Iterator<Item = (NodeId, Rank)> + '_ {
        self.entries.iter().map(|entry| (entry.id, entry.rank()))
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Put a node in, or to where its rank belongs now.
    pub fn put(&mut self, hall: &mut Hall<'_>, id: NodeId, rank: Rank) {
        let entry = Entry { first: rank.first, second: rank.second, group: rank.group, id };
        let at = if let Some((_, place)) = hall.seats.get(id) {
            self.entries[place] = entry;
            place
        } else {
            self.entries.push(entry);
            self.entries.len() - 1
        };
        let at = self.rise(hall, at);
        self.sink(hall, at);
    }

    /// Take a node out that has a seat here.
    pub fn take(&mut self, hall: &mut Hall<'_>, id: NodeId, place: usize) {
        hall.seats.clear(id);
        self.entries.swap_remove(place);
        if place < self.entries.len() {
            let at = self.rise(hall, place);
            self.sink(hall, at);
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

    fn seat(&mut self, hall: &mut Hall<'_>, at: usize, entry: Entry) {
        self.entries[at] = entry;
        hall.seats.put(entry.id, hall.class, at);
    }

    fn rise(&mut self, hall: &mut Hall<'_>, mut at: usize) -> usize {
        let entry = self.entries[at];
        while at > 0 {
            let above = (at - 1) / ARITY;
            if !Self::before(hall.arena, &entry, &self.entries[above]) {
                break;
            }
            self.seat(hall, at, self.entries[above]);
            at = above;
        }
        self.seat(hall, at, entry);
        at
    }

    fn sink(&mut self, hall: &mut Hall<'_>, mut at: usize) {
        let entry = self.entries[at];
        loop {
            let first = at * ARITY + 1;
            let below = first..(first + ARITY).min(self.entries.len());
            let Some(best) = below.reduce(|best, other| {
                if Self::before(hall.arena, &self.entries[other], &self.entries[best]) { other } else { best }
            }) else {
                break;
            };
            if !Self::before(hall.arena, &self.entries[best], &entry) {
                break;
            }
            self.seat(hall, at, self.entries[best]);
            at = best;
        }
        self.seat(hall, at, entry);
    }
}

/// Between equal ranks: whether `one` goes before `other`, deeper first, then older.
pub fn tie(arena: &Arena, one: NodeId, other: NodeId) -> bool {
    let (one, other) = (arena.node(one), arena.node(other));
    (other.end, one.birth) < (one.end, other.birth)
}
