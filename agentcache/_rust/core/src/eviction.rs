//! One call of `evict`: victims, what their loss takes along, and where it goes (design §4.2, §7).

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use crate::arena::{FULL, NodeId, NodeKey, ORIGIN};
use crate::changes::Changes;
use crate::jobs::{JobTable, Place, Terms};
use crate::rooms::{Guest, HostRoom, cascaded};
use crate::trie::Trie;
use crate::values::{Tier, Wait};

const DEVICE: Tier = Tier::Device;
const HOST: Tier = Tier::Host;

/// A page position of this call: the node that ended there.
type Position = (NodeKey, u32);

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub component: usize,
    pub tier: Tier,
    pub want: i64,
    pub now_ns: i64,
    /// For whom: nothing goes that is not expected later than a session that waits so.
    pub before: Option<Wait>,
}

/// Takes the lowest ranked piece until enough is gained, then the tails that nothing can reach any more.
pub struct Eviction<'a> {
    trie: &'a mut Trie,
    jobs: &'a mut JobTable,
    changes: &'a mut Changes,
    asked: Asked,
    room: HostRoom,
    /// Whether a device copy may go down instead of being dropped: then pages are taken one by one.
    demoting: bool,
    freed: i64,
    moving: i64,
    leaving: Vec<Place>,
    going: Vec<NodeKey>,
    /// Where data went, and whether its trigger was referenced.
    touched: Vec<(Position, bool)>,
}

impl<'a> Eviction<'a> {
    pub fn new(
        trie: &'a mut Trie,
        jobs: &'a mut JobTable,
        changes: &'a mut Changes,
        asked: Asked,
        room: &[i64],
    ) -> Self {
        let demoting = trie.config.write_back && trie.config.host_tier && asked.tier == DEVICE;
        Eviction {
            trie,
            jobs,
            changes,
            asked,
            room: HostRoom::new(room, asked.now_ns),
            demoting,
            freed: 0,
            moving: 0,
            leaving: Vec::new(),
            going: Vec::new(),
            touched: Vec::new(),
        }
    }

    /// Evict; answers the slots of the component that are freed, and those moving.
    pub fn run(mut self) -> (i64, i64) {
        let Asked { component, tier, want, now_ns, before } = self.asked;
        while self.gained() < want {
            let Some(victim) = self.trie.best(component, tier, now_ns) else { break };
            if before.is_some_and(|wait| !self.trie.expected_after(wait, victim, component)) {
                break;
            }
            self.take(victim);
            let mut leaving = std::mem::take(&mut self.leaving);
            let terms = Terms { leaving: true, keep_unlanded: false };
            self.jobs.plan(self.trie, &mut leaving, (DEVICE, HOST), terms, self.changes);
        }
        for key in std::mem::take(&mut self.going) {
            if self.trie.arena.holds(key) {
                self.trie.set_going(key.id, false);
            }
        }
        self.sweep();
        (self.freed, self.moving)
    }

    fn gained(&self) -> i64 {
        self.freed + self.moving
    }

    fn candidate(&self, id: NodeId) -> bool {
        self.trie.candidate(id, FULL, self.asked.tier)
    }

    fn take(&mut self, victim: NodeId) {
        let referenced = self.trie.arena.cell(victim, self.asked.component).live > 0;
        let position = (self.trie.arena.key(victim), self.trie.end(victim));
        if self.asked.component == FULL {
            self.trim(victim);
        } else {
            self.take_piece(victim);
        }
        self.touched.push((position, referenced));
    }

    // -- FULL: a tail, from its end

    /// Shorten a path from its end down to the next boundary that votes, at least `want`, no further.
    fn trim(&mut self, tail: NodeId) {
        let key = self.trie.rank(tail, FULL);
        let mut at = tail;
        while self.candidate(at) && self.trie.rank(at, FULL) == key {
            if self.demoting {
                if let Some(above) = self.leave_run(at) {
                    at = above;
                    if self.done(at, self.trie.end(at)) {
                        return;
                    }
                    continue;
                }
                let end = self.trie.end(at);
                let above = self.trie.cut(at, end - self.trie.config.page_tokens);
                if !self.leave_page(at) {
                    return;
                }
                at = above;
                if self.done(at, self.trie.end(at)) {
                    return;
                }
            } else {
                let (end, voting) = self.trim_end(at);
                at = self.lose_tail(at, end);
                if voting {
                    return;
                }
            }
        }
    }

    /// Whether enough is gained and a trimmed path may end here.
    fn done(&self, holder: NodeId, end: u32) -> bool {
        self.gained() >= self.asked.want && self.trie.votes(holder, end)
    }

    /// The last pages of a run that is on the device with FULL alone go down together, as one by one they would: the
    /// first may need a lower ranked page to make way, the others carry it. None: no page of it can go so.
    fn leave_run(&mut self, id: NodeId) -> Option<NodeId> {
        let node = self.trie.arena.node(id);
        let (start, end, page) = (node.start, node.end, self.trie.config.page_tokens);
        if end - start <= page || node.resident != [1 << FULL, 0] || self.trie.tip_stands_apart(id) {
            return None;
        }
        let before = self.moving;
        let mut inner = end;
        while inner > start {
            self.moving += 1;
            inner -= page;
            let holder = if inner > start { id } else { self.trie.parent(id) };
            if self.done(holder, inner) {
                break;
            }
        }
        let guest = Guest { id, end, component: FULL };
        let pages = self.room.take_run(self.trie, guest, self.moving - before, &self.leaving, self.changes);
        self.moving = before + pages;
        if pages == 0 {
            return None;
        }
        let above = self.trie.cut(id, end - pages as u32 * page);
        self.trie.set_going(id, true);
        self.going.push(self.trie.arena.key(id));
        self.leaving.push((id, FULL));
        Some(above)
    }

    /// Up to where a run is trimmed, and whether that end votes.
    fn trim_end(&self, id: NodeId) -> (u32, bool) {
        let (start, end, page) =
            (self.trie.arena.node(id).start, self.trie.end(id), self.trie.config.page_tokens);
        let need = (self.asked.want - self.gained()).max(1);
        if self.trie.tip_stands_apart(id) {
            let inner = end - page;
            let holder = if inner > start { id } else { self.trie.parent(id) };
            return (inner, need == 1 && self.trie.votes(holder, inner));
        }
        if need > i64::from((end - start) / page) {
            return (start, false);
        }
        let inner = self.trie.floor_grid(end - need as u32 * page);
        if inner > start && self.trie.votes(id, inner) {
            return (inner, true);
        }
        (start, self.trie.votes(self.trie.parent(id), start))
    }

    /// FULL leaves the tier from `end` on, with every aux piece there; answers the node that ends at `end` now.
    fn lose_tail(&mut self, id: NodeId, end: u32) -> NodeId {
        let above = self.trie.cut(id, end);
        for component in cascaded(self.trie, id, FULL, self.asked.tier, false) {
            self.lose(id, component);
        }
        self.lose(id, FULL);
        above
    }

    /// FULL leaves the device at this page, down where it fits; every aux piece there shares its fate.
    ///
    /// False: nothing left, because something below is only on its way and this page cannot go with it.
    fn leave_page(&mut self, id: NodeId) -> bool {
        let aux = cascaded(self.trie, id, FULL, DEVICE, false);
        let backed = self.trie.has(id, FULL, HOST);
        if !backed && self.demotes(id, FULL) {
            self.trie.set_going(id, true);
            self.going.push(self.trie.arena.key(id));
            self.send(id, FULL);
            for component in aux {
                self.give_up(id, component);
            }
            return true;
        }
        if !self.leaving.is_empty() || self.trie.arena.node(id).leaving > 0 {
            return false;
        }
        for component in aux {
            if backed {
                self.give_up(id, component);
            } else {
                self.lose(id, component);
            }
        }
        self.lose(id, FULL);
        true
    }

    // -- aux: one checkpoint, or one window interval between boundaries

    fn take_piece(&mut self, victim: NodeId) {
        for id in self.interval(victim) {
            let demoted = self.give_up(id, self.asked.component);
            for component in cascaded(self.trie, id, self.asked.component, self.asked.tier, demoted) {
                // What it takes along shares its fate.
                if demoted {
                    self.give_up(id, component);
                } else {
                    self.lose(id, component);
                }
            }
        }
    }

    /// The run that makes one piece with the victim, deepest first: equal rank, no boundary and no fork within.
    fn interval(&mut self, victim: NodeId) -> Vec<NodeId> {
        let Asked { component, tier, .. } = self.asked;
        if self.trie.is_state(component) {
            return vec![victim];
        }
        let key = self.trie.rank(victim, component);
        let start = self.trie.floor_grid(self.trie.end(victim) - self.trie.config.page_tokens);
        let (mut at, mut found) = (victim, Vec::new());
        loop {
            if self.trie.arena.node(at).start < start {
                self.trie.cut(at, start);
            }
            let above = self.trie.parent(at);
            let joined = self.trie.arena.node(at).start > start
                && self.trie.arena.node(above).children == 1
                && self.trie.candidate(above, component, tier)
                && self.trie.rank(above, component) == key;
            found.push(at);
            if !joined {
                break;
            }
            at = above;
        }
        if self.demoting { found.into_iter().flat_map(|id| self.pages(id)).collect() } else { found }
    }

    /// The pages of a run as nodes of their own, deepest first: each finds its own place below.
    fn pages(&mut self, id: NodeId) -> Vec<NodeId> {
        let (mut at, mut found) = (id, vec![id]);
        while self.trie.width(at, FULL) > 1 {
            at = self.trie.cut(at, self.trie.end(at) - self.trie.config.page_tokens);
            found.push(at);
        }
        found
    }

    // -- where a copy goes

    /// One copy leaves the tier, down where it fits; answers whether it survives below.
    fn give_up(&mut self, id: NodeId, component: usize) -> bool {
        if self.asked.tier == DEVICE && self.trie.has(id, component, HOST) {
            self.lose(id, component);
            return true;
        }
        if self.demotes(id, component) {
            self.send(id, component);
            return true;
        }
        self.lose(id, component);
        false
    }

    fn lose(&mut self, id: NodeId, component: usize) {
        let Asked { component: asked, tier, .. } = self.asked;
        if component == asked && self.trie.has(id, component, tier) {
            self.freed += i64::from(self.trie.width(id, component));
        }
        self.trie.lose(id, component, tier, self.changes);
    }

    fn send(&mut self, id: NodeId, component: usize) {
        self.moving += i64::from(component == self.asked.component);
        self.leaving.push((id, component));
    }

    /// Whether one host slot is to be had for this piece.
    fn demotes(&mut self, id: NodeId, component: usize) -> bool {
        let guest = Guest { id, end: self.trie.end(id), component };
        self.demoting && self.room.take(self.trie, guest, &self.leaving, self.changes)
    }

    // -- tails beyond the deepest boundary that votes

    /// Drop tails that nothing can reach any more: above a trimmed tail, or below a lost aux piece.
    fn sweep(&mut self) {
        let mut reached = [HashSet::default(), HashSet::default()];
        for (position, referenced) in std::mem::take(&mut self.touched) {
            for tail in self.ends(position, &mut reached[usize::from(referenced)]) {
                if self.stands(tail) {
                    self.drop_dead(tail.0.id, referenced);
                }
            }
        }
    }

    fn stands(&self, (key, end): Position) -> bool {
        self.trie.arena.holds(key) && self.trie.end(key.id) == end
    }

    /// Where tails may end now: where a trimmed path does, or at and below a lost aux piece.
    fn ends(&self, position: Position, reached: &mut HashSet<NodeKey, FixedState>) -> Vec<Position> {
        if self.asked.component != FULL && self.stands(position) {
            return self.cut_off(position, reached);
        }
        let mut key = position.0;
        while !self.trie.arena.holds(key) {
            let Some(above) = self.changes.above.get(&key) else { return Vec::new() };
            key = *above;
        }
        vec![(key, self.trie.end(key.id))]
    }

    /// The nodes from a lost piece down to the next boundaries that vote without it, each `reached` once.
    fn cut_off(&self, top: Position, reached: &mut HashSet<NodeKey, FixedState>) -> Vec<Position> {
        let mut found = Vec::new();
        if reached.insert(top.0) {
            found.push(top);
        }
        let mut next = 0;
        while next < found.len() {
            let id = found[next].0.id;
            next += 1;
            for child in self.trie.arena.children(id) {
                let key = self.trie.arena.key(child);
                let above = self.trie.end(id);
                if self.trie.first_votable(child, above).is_none() && reached.insert(key) {
                    found.push((key, self.trie.end(child)));
                }
            }
        }
        found
    }

    fn drop_dead(&mut self, tail: NodeId, referenced: bool) {
        if !self.candidate(tail) {
            return;
        }
        let deepest = self.trie.deepest_votable(tail, self.trie.end(tail)).1;
        let mut at = tail;
        while at != ORIGIN
            && self.trie.end(at) > deepest
            && self.candidate(at)
            && (referenced || self.trie.arena.cell(at, FULL).live == 0)
        {
            let end = self.trie.arena.node(at).start.max(deepest);
            at = self.lose_tail(at, end);
        }
    }
}
