//! One commit: attach what arrived, then let go of what left or never came.

use crate::arena::{FULL, NodeId, NodeKey, ORIGIN};
use crate::changes::Changes;
use crate::jobs::{Arrivals, JobRecord, places, span};
use crate::pieces::Pieces;
use crate::runs::Slots;
use crate::trie::Trie;
use crate::values::{Piece, Tier};

const DEVICE: Tier = Tier::Device;

/// A run of the job whose pages all landed, or none: its node, and the source and destination slots.
struct Part {
    node: NodeKey,
    component: usize,
    range: (u32, u32),
    source: Vec<i32>,
    arrived: Vec<i32>,
}

pub struct Settlement<'a> {
    trie: &'a mut Trie,
    record: &'a JobRecord,
    changes: &'a mut Changes,
    parts: Vec<Part>,
    landed: Pieces,
}

impl<'a> Settlement<'a> {
    pub fn new(
        trie: &'a mut Trie,
        record: &'a JobRecord,
        arrivals: &Arrivals,
        changes: &'a mut Changes,
    ) -> Self {
        divide(trie, record, arrivals);
        let mut parts: Vec<Part> =
            places(trie, record).iter().map(|place| part(trie, record, arrivals, *place)).collect();
        parts.sort_by_key(|part| (trie.end(part.node.id), part.component));
        let landed = Pieces::new(trie.components().len());
        Settlement { trie, record, changes, parts, landed }
    }

    /// Answers what landed and what was dropped.
    pub fn run(mut self) -> (Vec<Piece>, Vec<Piece>) {
        let parts = std::mem::take(&mut self.parts);
        if self.record.job.target != Tier::External {
            for part in &parts {
                if !part.arrived.is_empty() {
                    self.arrive(part);
                } else if self.record.job.leaving && !self.record.keep_unlanded {
                    self.drop(part);
                }
            }
            if self.record.job.leaving {
                for part in parts.iter().rev() {
                    self.depart(part);
                }
            }
        }
        for part in &parts {
            self.strip(part);
        }
        let dropped = self.dropped(&parts);
        (self.landed.build(), dropped)
    }

    fn arrive(&mut self, part: &Part) {
        let (target, component) = (self.record.job.target, part.component);
        let id = part.node.id;
        if !self.trie.arena.holds(part.node) || self.trie.has(id, component, target) || !self.ground(part) {
            self.changes.free(component, target, &part.arrived);
            return;
        }
        self.trie.attach(id, component, target, Slots::new(&part.arrived), self.changes);
        self.landed.add(component, part.range, &part.arrived);
    }

    /// On the device, FULL needs its parent and aux data their FULL; below, existing nodes are ground enough.
    fn ground(&self, part: &Part) -> bool {
        let (trie, id) = (&self.trie, part.node.id);
        if self.record.job.target != DEVICE {
            return true;
        }
        let parent = trie.parent(id);
        if part.component == FULL {
            parent == ORIGIN || trie.has(parent, FULL, DEVICE)
        } else {
            trie.has(id, FULL, DEVICE)
        }
    }

    /// Locked, used, or read by another job since the job was planned: the device copy stays.
    fn busy(&self, id: NodeId, component: usize) -> bool {
        let cell = self.trie.arena.cell(id, component);
        cell.locks > 0 || cell.touched > self.record.tick || cell.claims[DEVICE as usize] > 0
    }

    /// A piece that was sent off and did not land goes, a FULL page with all below it.
    fn drop(&mut self, part: &Part) {
        let (id, component) = (part.node.id, part.component);
        if !self.trie.arena.holds(part.node) || !self.trie.has(id, component, DEVICE) {
            return; // gone with a page above
        }
        if self.busy(id, component) || (component == FULL && self.trie.arena.node(id).jobs_below > 0) {
            return;
        }
        if component == FULL {
            self.leave_device(id);
        } else {
            self.trie.lose(id, component, DEVICE, self.changes);
        }
    }

    /// FULL leaves the device here, and what lies on it; a host copy that came meanwhile stays.
    fn leave_device(&mut self, id: NodeId) {
        for component in self.trie.components().filter(|component| *component != FULL) {
            if self.trie.has(id, component, DEVICE) {
                self.trie.lose(id, component, DEVICE, self.changes);
            }
        }
        self.trie.lose(id, FULL, DEVICE, self.changes);
    }

    /// Landed pieces leave the device, deepest first, aux before FULL; a page that is still needed stays on both.
    fn depart(&mut self, part: &Part) {
        let (id, component) = (part.node.id, part.component);
        let gone = part.arrived.is_empty()
            || !self.trie.arena.holds(part.node)
            || !self.trie.has(id, component, DEVICE);
        if gone || self.busy(id, component) || (component == FULL && self.carries(id)) {
            return;
        }
        self.trie.lose(id, component, DEVICE, self.changes);
    }

    fn carries(&self, id: NodeId) -> bool {
        let aux = self.trie.components().filter(|component| *component != FULL);
        self.trie.arena.node(id).carrying[DEVICE as usize] > 0
            || aux.into_iter().any(|component| self.trie.has(id, component, DEVICE))
    }

    /// Aux data whose FULL left the device while jobs read them go with the last of these jobs.
    fn strip(&mut self, part: &Part) {
        let (id, component) = (part.node.id, part.component);
        let stays = !self.trie.arena.holds(part.node)
            || self.trie.has(id, FULL, DEVICE)
            || self.trie.arena.cell(id, component).protected(DEVICE)
            || !self.trie.has(id, component, DEVICE);
        if !stays {
            self.trie.lose(id, component, DEVICE, self.changes);
        }
    }

    /// The pieces of the job that are on no tier any more, with the slots that they had.
    fn dropped(&self, parts: &[Part]) -> Vec<Piece> {
        let mut pieces = Pieces::new(self.trie.components().len());
        for part in parts {
            if !self.trie.arena.holds(part.node) || !self.trie.anywhere(part.node.id, part.component) {
                pieces.add(part.component, part.range, &part.source);
            }
        }
        pieces.build()
    }
}

/// Cut the job's path where landed pages meet others.
fn divide(trie: &mut Trie, record: &JobRecord, arrivals: &Arrivals) {
    let page = trie.config.page_tokens;
    let mut bounds = Vec::new();
    for component in trie.components().filter(|component| !trie.is_state(*component)) {
        for end in arrivals[component].keys() {
            let start = *end - page;
            if !arrivals[component].contains_key(&start) {
                bounds.push(start);
            }
            if !arrivals[component].contains_key(&(*end + page)) {
                bounds.push(*end);
            }
        }
    }
    bounds.sort_unstable_by(|one, other| other.cmp(one));
    let mut tip = record.tip;
    for at in bounds {
        tip = trie.cut(tip, at); // each above the one before
    }
}

fn part(trie: &Trie, record: &JobRecord, arrivals: &Arrivals, (id, component): (NodeId, usize)) -> Part {
    let range = span(trie, id, component);
    let first = if trie.is_state(component) { range.1 } else { range.0 + 1 };
    let arrived = arrivals[component].range(first..=range.1).map(|(_, slot)| *slot).collect();
    Part {
        node: trie.arena.key(id),
        component,
        range,
        source: trie.slots(id, component, record.job.source).to_vec(),
        arrived,
    }
}
