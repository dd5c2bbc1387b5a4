//! Results out: the frozen values of `types.py`.

use agentcache_core::{
    Boundary, Committed, Effect, Event, Evicted, Held, Inserted, Job, Locked, MatchResult, Miss, PageHash,
    Piece, Planned, Released, Tier,
};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt, PyTuple};

use crate::classes::{Classes, Records};
use crate::names::Names;

pub type Built<'py> = PyResult<Bound<'py, PyAny>>;

/// Builds the answers of one core.
#[derive(Clone, Copy)]
pub struct Builder<'a, 'py> {
    pub py: Python<'py>,
    pub classes: &'static Classes,
    pub names: &'a Names,
}

impl<'py> Builder<'_, 'py> {
    pub fn records(&self) -> &'static Records {
        &self.classes.records
    }

    pub fn int(&self, value: impl Into<i64>) -> Bound<'py, PyAny> {
        PyInt::new(self.py, value.into()).into_any()
    }

    pub fn flag(&self, value: bool) -> Bound<'py, PyAny> {
        PyBool::new(self.py, value).to_owned().into_any()
    }

    pub fn none(&self) -> Bound<'py, PyAny> {
        self.py.None().into_bound(self.py)
    }

    pub fn tier(&self, tier: Tier) -> Bound<'py, PyAny> {
        self.classes.enums.tiers.object(self.py, tier)
    }

    pub fn tuple<T>(&self, values: Vec<T>, of: impl Fn(T) -> Built<'py>) -> Built<'py> {
        if values.is_empty() {
            return Ok(PyTuple::empty(self.py).into_any());
        }
        let built = values.into_iter().map(of).collect::<PyResult<Vec<_>>>()?;
        Ok(PyTuple::new(self.py, built)?.into_any())
    }

    fn slots(&self, slots: Vec<i32>) -> Built<'py> {
        if slots.is_empty() {
            return Ok(self.classes.no_slots.bind(self.py).clone());
        }
        self.classes.numpy.array(self.py, slots)
    }

    pub fn boundary(&self, boundary: Boundary) -> Built<'py> {
        let node = [self.int(boundary.node.index), self.int(boundary.node.generation)];
        let node = self.records().node.build(self.py, node)?;
        self.records().boundary.build(self.py, [node, self.int(boundary.length), self.int(boundary.epoch)])
    }

    fn lease(&self, number: i64) -> Built<'py> {
        self.records().lease.build(self.py, [self.int(number)])
    }

    fn piece(&self, piece: Piece) -> Built<'py> {
        let name = self.names.known(self.py, piece.component);
        let fields = [name, self.int(piece.start), self.int(piece.end), self.slots(piece.slots)?];
        self.records().piece.build(self.py, fields)
    }

    fn pieces(&self, pieces: Vec<Piece>) -> Built<'py> {
        self.tuple(pieces, |piece| self.piece(piece))
    }

    // -- results

    pub fn found(&self, found: MatchResult) -> Built<'py> {
        let device = self.boundary(found.device)?;
        let any_tier =
            if found.any_tier == found.device { device.clone() } else { self.boundary(found.any_tier)? };
        let miss = found.miss.map_or_else(|| Ok(self.none()), |miss| self.miss(miss))?;
        self.records().found.build(self.py, [device, any_tier, self.int(found.full_tokens), miss])
    }

    fn miss(&self, miss: Miss) -> Built<'py> {
        let name = self.names.known(self.py, miss.component);
        let reason = self.classes.enums.reasons.object(self.py, miss.reason);
        self.records().miss.build(self.py, [name, self.int(miss.position), reason])
    }

    /// `asked` is the boundary object that was locked, which the answer names.
    pub fn locked(&self, locked: Locked, asked: &Bound<'py, PyAny>) -> Built<'py> {
        let (lease, pieces) = (self.lease(locked.lease)?, self.pieces(locked.pieces)?);
        self.records().locked.build(self.py, [lease, asked.clone(), pieces])
    }

    pub fn inserted(&self, inserted: Inserted) -> Built<'py> {
        let (taken, kept) = (self.pieces(inserted.taken)?, self.pieces(inserted.kept)?);
        let fields = [self.boundary(inserted.frontier)?, taken, kept, self.effects(inserted.effects)?];
        self.records().inserted.build(self.py, fields)
    }

    pub fn evicted(&self, evicted: Evicted) -> Built<'py> {
        let effects = self.effects(evicted.effects)?;
        let fields = [self.int(evicted.freed), self.int(evicted.moving), self.int(evicted.short), effects];
        self.records().evicted.build(self.py, fields)
    }

    /// The job is one object in the answer and in its Move, as it is one job.
    pub fn planned(&self, planned: Planned) -> Built<'py> {
        let lease = planned.lease.map_or_else(|| Ok(self.none()), |lease| self.lease(lease))?;
        let Some(job) = planned.job else {
            let fields = [self.none(), lease, self.effects(planned.effects)?];
            return self.records().planned.build(self.py, fields);
        };
        let (number, built) = (job.number, self.job(job)?);
        let effects = self.tuple(planned.effects, |effect| match effect {
            Effect::Move(job) if job.number == number => {
                self.records().transfer.build(self.py, [built.clone()])
            }
            effect => self.effect(effect),
        })?;
        self.records().planned.build(self.py, [built, lease, effects])
    }

    pub fn committed(&self, committed: Committed) -> Built<'py> {
        let (landed, dropped) = (self.pieces(committed.landed)?, self.pieces(committed.dropped)?);
        self.records().committed.build(self.py, [landed, dropped, self.effects(committed.effects)?])
    }

    pub fn released(&self, released: Released) -> Built<'py> {
        let mode = self.classes.enums.modes.object(self.py, released.mode);
        let held = self.tuple(released.held, |held| self.held(held))?;
        let fields = [mode, held, self.int(released.markers), self.effects(released.effects)?];
        self.records().released.build(self.py, fields)
    }

    fn held(&self, held: Held) -> Built<'py> {
        let name = self.names.known(self.py, held.component);
        let counts = [held.tokens, held.slots, held.shared_slots].map(|count| self.int(count));
        let [tokens, slots, shared] = counts;
        let fields = [name, self.tier(held.tier), tokens, slots, shared];
        self.records().held.build(self.py, fields)
    }

    // -- effects

    fn effects(&self, effects: Vec<Effect>) -> Built<'py> {
        self.tuple(effects, |effect| self.effect(effect))
    }

    fn effect(&self, effect: Effect) -> Built<'py> {
        match effect {
            Effect::Free { component, tier, slots } => {
                let pool = self.names.pool(self.py, component, tier);
                self.records().free.build(self.py, [pool, self.slots(slots)?])
            }
            Effect::Move(job) => self.records().transfer.build(self.py, [self.job(job)?]),
            Effect::Emit(event) => self.records().emit.build(self.py, [self.event(event)?]),
        }
    }

    fn job(&self, job: Job) -> Built<'py> {
        let (source, target) = (self.tier(job.source), self.tier(job.target));
        let fields = [self.int(job.number), source, target, self.pieces(job.pieces)?, self.flag(job.leaving)];
        self.records().job.build(self.py, fields)
    }

    fn event(&self, event: Event) -> Built<'py> {
        let kind = self.classes.enums.events.object(self.py, event.kind);
        let hashes = self.tuple(event.hashes, |hash| Ok(self.hash(hash)))?;
        let parent = event.parent.map_or_else(|| self.none(), |parent| self.hash(parent));
        let tokens = self.tuple(event.tokens, |token| Ok(self.int(token)))?;
        let name = self.names.known(self.py, event.component);
        self.records().event.build(self.py, [kind, self.tier(event.tier), hashes, parent, tokens, name])
    }

    fn hash(&self, hash: PageHash) -> Bound<'py, PyAny> {
        PyBytes::new(self.py, &hash).into_any()
    }
}
