//! Leases: which positions running requests depend on.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::arena::{FULL, NodeId, ORIGIN};
use crate::error::{Error, Kind, Result};
use crate::trie::Trie;
use crate::values::{Boundary, Locked, Piece, Tier};

/// A lease's node, which ends at its boundary, and per component from where it still covers the path to there.
#[derive(Clone, Debug)]
pub struct LeaseRecord {
    pub node: NodeId,
    /// None: nothing (any more). A checkpoint's start is the boundary itself.
    pub starts: Vec<Option<u32>>,
}

/// Lock counts, added and taken back by retracing the recorded regions.
#[derive(Debug)]
pub struct LeaseTable {
    records: HashMap<i64, LeaseRecord, FixedState>,
    next: i64,
}

impl LeaseTable {
    pub fn new(first: i64) -> Self {
        LeaseTable { records: HashMap::default(), next: first }
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn records(&self) -> impl Iterator<Item = &LeaseRecord> {
        self.records.values()
    }

    /// Errors: `LeaseReused`.
    pub fn record(&self, lease: i64) -> Result<&LeaseRecord> {
        self.records.get(&lease).ok_or_else(|| {
            Error::new(Kind::LeaseReused, "this lease is not outstanding; release a lease once")
                .fact("number", lease)
        })
    }

    pub fn lock(&mut self, trie: &mut Trie, boundary: &Boundary) -> Result<Locked> {
        let (record, locked) = cover(trie, self.next, boundary)?;
        self.enter(trie, locked.lease, record);
        Ok(locked)
    }

    pub fn relock(&mut self, trie: &mut Trie, lease: i64, boundary: &Boundary) -> Result<Locked> {
        let before = self.record(lease)?.clone();
        let (record, locked) = cover(trie, lease, boundary)?;
        self.enter(trie, lease, record);
        count(trie, &before, false);
        Ok(locked)
    }

    /// Lease what a load finds on the device already: the regions at `node`, cut at `device_end`.
    pub fn lock_device_part(&mut self, trie: &mut Trie, node: NodeId, device_end: u32) -> i64 {
        let boundary = trie.end(node);
        let mut at = node;
        while trie.end(at) > device_end {
            at = trie.parent(at);
        }
        let starts = trie.components().map(|component| {
            let start = trie.region_start(component, boundary);
            let reaches = start < device_end || (trie.is_state(component) && boundary == device_end);
            reaches.then_some(start)
        });
        let record = LeaseRecord { node: at, starts: starts.collect() };
        self.enter(trie, self.next, record)
    }

    /// Release a lease, or early only one of its aux components. Errors: `LeaseReused`, `UnknownComponent`.
    pub fn unlock(&mut self, trie: &mut Trie, lease: i64, component: Option<usize>) -> Result<()> {
        self.record(lease)?;
        let Some(name) = component else {
            if let Some(record) = self.records.remove(&lease) {
                count(trie, &record, false);
            }
            return Ok(());
        };
        if trie.known(name)? == FULL {
            return Err(Error::new(
                Kind::UnknownComponent,
                "FULL is released with the whole lease, not alone",
            )
            .of(FULL));
        }
        let Some(record) = self.records.get_mut(&lease) else { return Ok(()) };
        let mut early = LeaseRecord { node: record.node, starts: vec![None; record.starts.len()] };
        early.starts[name] = record.starts[name].take();
        count(trie, &early, false);
        Ok(())
    }

    fn enter(&mut self, trie: &mut Trie, lease: i64, record: LeaseRecord) -> i64 {
        count(trie, &record, true);
        self.records.insert(lease, record);
        self.next = self.next.max(lease + 1);
        lease
    }
}

/// The regions at a boundary with their device slots. Errors: `StaleBoundary`, `NotResident`.
fn cover(trie: &mut Trie, lease: i64, boundary: &Boundary) -> Result<(LeaseRecord, Locked)> {
    let (holder, length) = trie.find(boundary)?;
    let node = trie.cut(holder, length);
    let mut nodes = Vec::new();
    let mut pieces = Vec::with_capacity(trie.components().len());
    let mut starts = Vec::with_capacity(trie.components().len());
    for component in trie.components() {
        trie.region(component, node, &mut nodes);
        if let Some(absent) = nodes.iter().find(|at| !trie.has(**at, component, Tier::Device)) {
            return Err(Error::new(
                Kind::NotResident,
                "this boundary does not vote on the device; lock the `device` boundary of a match",
            )
            .of(component)
            .fact("position", trie.end(*absent)));
        }
        let start = trie.region_start(component, length);
        let pages = nodes.iter().map(|at| trie.width(*at, component) as usize).sum();
        let mut slots = Vec::with_capacity(pages);
        for at in nodes.iter().rev() {
            slots.extend_from_slice(trie.slots(*at, component, Tier::Device));
        }
        pieces.push(Piece { component, start: i64::from(start), end: i64::from(length), slots });
        starts.push(Some(start));
    }
    Ok((LeaseRecord { node, starts }, Locked { lease, boundary: *boundary, pieces }))
}

/// Count a lease in, as a use for jobs in flight, or out.
fn count(trie: &mut Trie, record: &LeaseRecord, on: bool) {
    if record.node == ORIGIN {
        return;
    }
    let mut nodes = Vec::new();
    let tick = trie.tick;
    for component in trie.components() {
        let Some(start) = record.starts[component] else { continue };
        if trie.is_state(component) {
            nodes.clear();
            nodes.push(record.node);
        } else {
            trie.span(record.node, start, &mut nodes);
        }
        for at in &nodes {
            let cell = trie.arena.cell_mut(*at, component);
            if on {
                cell.locks += 1;
                cell.touched = tick;
            } else {
                cell.locks -= 1;
            }
            trie.mark(*at);
        }
    }
}
