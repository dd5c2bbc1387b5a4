//! Jobs: transfers in flight, planned by region and settled by what landed (design §4.2).

use std::collections::BTreeMap;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::arena::{FULL, NodeId, ORIGIN};
use crate::changes::Changes;
use crate::error::{Error, Kind, Result};
use crate::pieces::Pieces;
use crate::settlement::Settlement;
use crate::trie::Trie;
use crate::values::{Job, Piece, Tier};

/// A run of a job: a node of its path and the component that is read there.
pub type Place = (NodeId, usize);

/// How a job is planned: whether the source copies go once landed, and whether those that do not land stay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms {
    pub leaving: bool,
    pub keep_unlanded: bool,
}

/// A job, the deepest node of its path, and when it was planned.
#[derive(Clone, Debug)]
pub struct JobRecord {
    pub job: Job,
    pub tip: NodeId,
    pub tick: u64,
    pub keep_unlanded: bool,
}

/// Where each landed place of a component went: by the end of the page or the position of the state.
pub type Arrivals = Vec<BTreeMap<u32, i32>>;

/// Claims of jobs in flight. A claimed copy stays until `commit`.
#[derive(Debug)]
pub struct JobTable {
    records: HashMap<i64, JobRecord, FixedState>,
    next: i64,
}

impl JobTable {
    pub fn new(first: i64) -> Self {
        JobTable { records: HashMap::default(), next: first }
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn records(&self) -> impl Iterator<Item = &JobRecord> {
        self.records.values()
    }

    // -- planning

    /// A copy of the region pieces at `node` that are on `source` and not on `target`; None when there are none.
    pub fn plan_region(
        &mut self,
        trie: &mut Trie,
        node: NodeId,
        route: (Tier, Tier),
        changes: &mut Changes,
    ) -> Option<Job> {
        let (mut places, mut nodes) = (Vec::new(), Vec::new());
        trie.cut_regions(node);
        for component in trie.components() {
            trie.region(component, node, &mut nodes);
            let wanted =
                |at: &&NodeId| trie.has(**at, component, route.0) && !trie.has(**at, component, route.1);
            places.extend(nodes.iter().filter(wanted).map(|at| (*at, component)));
        }
        self.plan(trie, &mut places, route, Terms::default(), changes)
    }

    /// Claim these places of one path on the route's source and emit the Move.
    pub fn plan(
        &mut self,
        trie: &mut Trie,
        places: &mut [Place],
        route: (Tier, Tier),
        terms: Terms,
        changes: &mut Changes,
    ) -> Option<Job> {
        places.sort_by_key(|(id, component)| (trie.end(*id), *component));
        let tip = places.last()?.0;
        let mut pieces = Pieces::new(trie.components().len());
        for (id, component) in places.iter() {
            pieces.add(*component, span(trie, *id, *component), trie.slots(*id, *component, route.0));
        }
        let (number, (source, target)) = (self.next, route);
        let job = Job { number, source, target, pieces: pieces.build(), leaving: terms.leaving };
        self.next += 1;
        for (id, component) in places.iter() {
            trie.claim(*id, *component, source, 1);
        }
        weigh(trie, tip, 1);
        let record = JobRecord { job: job.clone(), tip, tick: trie.tick, keep_unlanded: terms.keep_unlanded };
        self.records.insert(number, record);
        changes.send(job.clone());
        Some(job)
    }

    // -- committing

    /// Settle a job: the pieces that landed, and those that were dropped.
    pub fn commit(
        &mut self,
        trie: &mut Trie,
        job: i64,
        landed: &[Piece],
        changes: &mut Changes,
    ) -> Result<(Vec<Piece>, Vec<Piece>)> {
        let record = self.records.get(&job).ok_or_else(|| {
            Error::new(Kind::UnknownJob, "this job is not in flight; commit a job once").fact("number", job)
        })?;
        let arrivals = arrived(trie, &record.job, landed)?;
        let Some(record) = self.records.remove(&job) else { return Ok((Vec::new(), Vec::new())) };
        for (id, component) in places(trie, &record) {
            trie.claim(id, component, record.job.source, -1);
        }
        weigh(trie, record.tip, -1);
        Ok(Settlement::new(trie, &record, &arrivals, changes).run())
    }
}

/// One more job, or one less, at or above the end of its path.
fn weigh(trie: &mut Trie, tip: NodeId, by: i32) {
    let mut at = tip;
    while at != ORIGIN {
        let node = trie.arena.node_mut(at);
        node.jobs_below = node.jobs_below.wrapping_add_signed(by);
        trie.mark(at);
        at = trie.parent(at);
    }
}

/// A component's tokens on a node: its pages, or the position of a state.
pub fn span(trie: &Trie, id: NodeId, component: usize) -> (u32, u32) {
    let end = trie.end(id);
    (if trie.is_state(component) { end } else { trie.arena.node(id).start }, end)
}

/// The runs of a job as the path is cut now, shallowest first, FULL before the others of a node.
pub fn places(trie: &Trie, record: &JobRecord) -> Vec<Place> {
    let mut found = Vec::new();
    let mut at = record.tip;
    while at != ORIGIN {
        let end = i64::from(trie.end(at));
        for component in trie.components().rev() {
            if covers(trie, &record.job, component, end) {
                found.push((at, component));
            }
        }
        at = trie.parent(at);
    }
    found.reverse();
    found
}

/// Whether a job reads the page or state of a component that ends at `end`. Pieces come in spec order, then by position.
fn covers(trie: &Trie, job: &Job, component: usize, end: i64) -> bool {
    let at = job.pieces.partition_point(|piece| (piece.component, piece.end) < (component, end));
    job.pieces.get(at).is_some_and(|piece| {
        piece.component == component
            && if trie.is_state(component) { piece.end == end } else { piece.start < end }
    })
}

/// The destination slot of each landed place. Errors: `UnknownComponent`, `BadInsert`.
fn arrived(trie: &Trie, job: &Job, landed: &[Piece]) -> Result<Arrivals> {
    let bad = |message| Error::new(Kind::BadInsert, message);
    let page = i64::from(trie.config.page_tokens);
    let mut arrivals: Arrivals = vec![BTreeMap::new(); trie.components().len()];
    for piece in landed {
        let component = trie.known(piece.component)?;
        let state = trie.is_state(component);
        let count = if state { 1 } else { piece.end.saturating_sub(piece.start).div_euclid(page) };
        if count != piece.slots.len() as i64 || (state && piece.start != piece.end) {
            return Err(bad("one destination slot for each landed place").of(component));
        }
        let first = if state { piece.end } else { piece.start.saturating_add(page) };
        for (number, slot) in piece.slots.iter().enumerate() {
            let end = first.saturating_add(number as i64 * page);
            let belongs = end % page == 0 && covers(trie, job, component, end);
            let fresh = *slot >= 0
                && (job.target == Tier::External
                    || !trie.index[component][job.target as usize].owned.contains(*slot));
            let once = arrivals[component].insert(end as u32, *slot).is_none();
            if !belongs || !fresh || !once {
                return Err(bad("landed pieces are parts of the job, in new slots")
                    .of(component)
                    .fact("position", end));
            }
        }
    }
    for (component, places) in arrivals.iter().enumerate() {
        let mut slots: Vec<i32> = places.values().copied().collect();
        slots.sort_unstable();
        if slots.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(bad("landed pieces are parts of the job, in new slots").of(component));
        }
    }
    Ok(arrivals)
}

/// Errors: `NotResident` unless every component's region at `node` is on the device or the host.
pub fn demand_region(trie: &mut Trie, node: NodeId) -> Result<()> {
    let mut nodes = Vec::new();
    for component in trie.components() {
        trie.region(component, node, &mut nodes);
        if let Some(absent) = nodes.iter().find(|at| !trie.anywhere(**at, component)) {
            return Err(Error::new(
                Kind::NotResident,
                "this boundary does not vote on device or host; plan with `any_tier` of a match",
            )
            .of(component)
            .fact("position", trie.end(*absent)));
        }
    }
    Ok(())
}

/// How far FULL is on the device along the path to `node`.
pub fn device_end(trie: &Trie, node: NodeId) -> u32 {
    let mut at = node;
    while at != ORIGIN && !trie.has(at, FULL, Tier::Device) {
        at = trie.parent(at);
    }
    trie.end(at)
}
