//! The binding: converts arguments, runs one call of the core at a time, builds the results. It decides nothing.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod arrays;
mod building;
mod classes;
mod fault;
mod names;
mod reading;
#[allow(unsafe_code)]
mod records;
mod serial;
mod shape;
mod spaces;
mod views;

use agentcache_core::{Offer, TreeCore as Core};
use pyo3::exceptions::PyAssertionError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::building::{Builder, Built};
use crate::classes::Classes;
use crate::fault::Fault;
use crate::names::Names;
use crate::reading::{Reader, kept, optional, slots_in, whole};
use crate::serial::{Serial, guarded};
use crate::spaces::{Tree, known};

type Object<'a, 'py> = &'a Bound<'py, PyAny>;

/// The tree contract (`agentcache/tree/api.py`), served by the Rust core.
#[pyclass(module = "agentcache._native", subclass, frozen)]
struct TreeCore {
    tree: Serial<Tree>,
    names: Names,
    classes: &'static Classes,
    /// The config that the core was built from.
    #[pyo3(get)]
    config: Py<PyAny>,
}

impl TreeCore {
    /// Run one call; its arguments are read inside, where no other call can come between.
    fn run<R>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Tree, &Reader) -> Result<R, Fault>,
    ) -> PyResult<R> {
        let reader = Reader::new(self.classes, &self.names);
        self.tree
            .run(|tree| call(tree, &reader))
            .map_err(|fault| fault.raise(py, &self.names, reader.unknown()))
    }

    fn build<'py>(&self, py: Python<'py>) -> Builder<'_, 'py> {
        Builder { py, classes: self.classes, names: &self.names }
    }
}

#[pymethods]
impl TreeCore {
    #[new]
    fn new(config: Object, instance: u32) -> PyResult<Self> {
        let py = config.py();
        let nameless = |fault: Fault| fault.raise(py, &Names::none(), None);
        let (shape, names) = shape::read_config(config, instance).map_err(nameless)?;
        let core = guarded(|| Core::new(shape)).map_err(|panic| nameless(Fault::Broken(panic)))?;
        let tree = Serial::new(Tree::new(core));
        Ok(TreeCore { tree, names, classes: Classes::get(py)?, config: config.clone().unbind() })
    }

    // -- Lookup

    #[pyo3(name = "match")]
    fn match_prefix<'py>(&self, key: Object<'_, 'py>, limit: Object, now_ns: Object) -> Built<'py> {
        let found = self.run(key.py(), |tree, reader| {
            let (limit, now_ns, key) = (whole(limit)?, kept(now_ns)?, tree.key(reader.classes, key, known)?);
            Ok(tree.core.match_prefix(key.key(), limit, now_ns)?)
        })?;
        self.build(key.py()).found(found)
    }

    fn peek<'py>(&self, key: Object<'_, 'py>, limit: Object) -> Built<'py> {
        let found = self.run(key.py(), |tree, reader| {
            let (limit, key) = (whole(limit)?, tree.key(reader.classes, key, known)?);
            Ok(tree.core.peek(key.key(), limit)?)
        })?;
        self.build(key.py()).found(found)
    }

    fn insert<'py>(&self, key: Object<'_, 'py>, offer: Object, now_ns: Object) -> Built<'py> {
        let inserted = self.run(key.py(), |tree, reader| {
            let [full, pieces, after, tier, priority, full_from] =
                reader.classes.records.insert.fields(offer);
            let (after, priority) = (optional(&after?, |after| reader.lease(after))?, kept(&priority?)?);
            let full_from = optional(&full_from?, whole)?;
            let (tier, now_ns, pieces) = (reader.tier(&tier?), kept(now_ns)?, reader.pieces(&pieces?)?);
            let (key, full) = (tree.key(reader.classes, key, Core::namespace)?, slots_in(&full?)?);
            let offer = Offer { full: full.numbers(), pieces: &pieces, after, tier, priority, full_from };
            Ok(tree.core.insert(key.key(), &offer, now_ns)?)
        })?;
        self.build(key.py()).inserted(inserted)
    }

    fn lock<'py>(&self, boundary: Object<'_, 'py>, now_ns: Object) -> Built<'py> {
        let locked = self.run(boundary.py(), |tree, reader| {
            Ok(tree.core.lock(reader.boundary(boundary)?, kept(now_ns)?)?)
        })?;
        self.build(boundary.py()).locked(locked, boundary)
    }

    fn relock<'py>(&self, lease: Object, boundary: Object<'_, 'py>, now_ns: Object) -> Built<'py> {
        let locked = self.run(lease.py(), |tree, reader| {
            let (lease, boundary) = (reader.lease(lease)?, reader.boundary(boundary)?);
            Ok(tree.core.relock(lease, boundary, kept(now_ns)?)?)
        })?;
        self.build(boundary.py()).locked(locked, boundary)
    }

    fn unlock(&self, lease: Object, component: Object, now_ns: Object) -> PyResult<()> {
        self.run(lease.py(), |tree, reader| {
            let component = optional(component, |name| PyResult::Ok(reader.component(name)))?;
            Ok(tree.core.unlock(reader.lease(lease)?, component, kept(now_ns)?)?)
        })
    }

    #[pyo3(signature = (component, tier, want, room, now_ns, before=None))]
    fn evict<'py>(
        &self,
        component: Object<'_, 'py>,
        tier: Object,
        want: Object,
        room: Object,
        now_ns: Object,
        before: Option<Object>,
    ) -> Built<'py> {
        let evicted = self.run(component.py(), |tree, reader| {
            let (room, component) = (reader.room(room)?, reader.component(component));
            let before = before.map(|wait| reader.wait(wait)).transpose()?;
            Ok(tree.core.evict(component, reader.tier(tier), whole(want)?, &room, kept(now_ns)?, before)?)
        })?;
        self.build(component.py()).evicted(evicted)
    }

    // -- Tiering

    #[pyo3(signature = (boundary, source, target, now_ns, room=None))]
    fn plan_backup<'py>(
        &self,
        boundary: Object<'_, 'py>,
        source: Object,
        target: Object,
        now_ns: Object,
        room: Option<&Bound<'py, PyAny>>,
    ) -> Built<'py> {
        let planned = self.run(boundary.py(), |tree, reader| {
            let ((source, target), now_ns) = (reader.route(source, target)?, kept(now_ns)?);
            let room = room.map(|room| reader.room(room)).transpose()?;
            Ok(tree.core.plan_backup(reader.boundary(boundary)?, source, target, now_ns, room.as_deref())?)
        })?;
        self.build(boundary.py()).planned(planned)
    }

    fn plan_load<'py>(
        &self,
        boundary: Object<'_, 'py>,
        source: Object,
        target: Object,
        now_ns: Object,
    ) -> Built<'py> {
        let planned = self.run(boundary.py(), |tree, reader| {
            let (source, target) = reader.route(source, target)?;
            Ok(tree.core.plan_load(reader.boundary(boundary)?, source, target, kept(now_ns)?)?)
        })?;
        self.build(boundary.py()).planned(planned)
    }

    fn commit<'py>(&self, job: Object<'_, 'py>, landed: Object, now_ns: Object) -> Built<'py> {
        let committed = self.run(job.py(), |tree, reader| {
            let (job, landed) = (reader.job(job)?, reader.pieces(landed)?);
            Ok(tree.core.commit(job, &landed, kept(now_ns)?)?)
        })?;
        self.build(job.py()).committed(committed)
    }

    // -- Sessions

    fn reference<'py>(
        &self,
        session: &Bound<'py, PyString>,
        generation: Object,
        turn: Object,
        now_ns: Object,
    ) -> Built<'py> {
        let released = self.run(session.py(), |tree, reader| {
            let (generation, turn) = (kept(generation)?, reader.turn(turn)?);
            Ok(tree.core.reference(session.to_str()?, generation, &turn, kept(now_ns)?)?)
        })?;
        self.build(session.py()).released(released)
    }

    fn release<'py>(
        &self,
        session: &Bound<'py, PyString>,
        through_generation: Object,
        mode: Object,
        now_ns: Object,
    ) -> Built<'py> {
        let released = self.run(session.py(), |tree, reader| {
            let (generation, mode) = (whole(through_generation)?, reader.mode(mode)?);
            Ok(tree.core.release(session.to_str()?, generation, mode, kept(now_ns)?))
        })?;
        self.build(session.py()).released(released)
    }

    fn expect(&self, session: &Bound<'_, PyString>, wait: Object, now_ns: Object) -> PyResult<()> {
        self.run(session.py(), |tree, reader| {
            tree.core.expect(session.to_str()?, reader.wait(wait)?, kept(now_ns)?);
            Ok(())
        })
    }

    // -- Inspect

    fn snapshot<'py>(&self, py: Python<'py>) -> Built<'py> {
        let snapshot = self.run(py, |tree, _| Ok(tree.core.snapshot()))?;
        self.build(py).snapshot(snapshot)
    }

    fn outline<'py>(&self, limit: Object<'_, 'py>) -> Built<'py> {
        let outline = self
            .run(limit.py(), |tree, _| Ok(tree.core.outline(usize::try_from(whole(limit)?).unwrap_or(0))))?;
        self.build(limit.py()).outline(outline)
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |tree, _| Ok(tree.core.check()))?.map_err(PyAssertionError::new_err)
    }

    fn stats<'py>(&self, py: Python<'py>) -> Built<'py> {
        let stats = self.run(py, |tree, _| Ok(tree.core.stats()))?;
        self.build(py).stats(stats)
    }

    fn clear<'py>(&self, namespace: Object<'_, 'py>, now_ns: Object) -> Built<'py> {
        let released = self.run(namespace.py(), |tree, reader| {
            let space = if namespace.is_none() {
                None
            } else {
                Some(tree.namespace(reader.classes, namespace, known)?)
            };
            Ok(tree.core.clear(space, kept(now_ns)?)?)
        })?;
        self.build(namespace.py()).released(released)
    }

    /// Panic inside a call: what a bug of the core would do. For the test of that.
    fn _panic(&self, py: Python<'_>, words: &str) -> PyResult<()> {
        self.run(py, |_, _| panic!("{words}"))
    }
}

#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::TreeCore;

    /// The import fails where the classes of the Python side are not those that this was built for.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::Classes::get(module.py()).map(|_| ())
    }
}
