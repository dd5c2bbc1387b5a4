//! Python values in. Integers of any size are taken, saturated; buffers are borrowed for the call.

use std::cell::RefCell;

use agentcache_core::{Boundary, Kind, NodeRef, Piece, ReleaseMode, Tier, Turn, Wait};
use pyo3::prelude::*;

use crate::arrays::View;
use crate::classes::{Classes, WaitState};
use crate::fault::Fault;
use crate::names::{Names, UNKNOWN};
use crate::records::integer;

type Object<'a, 'py> = &'a Bound<'py, PyAny>;

/// Reads the arguments of one call.
pub struct Reader<'a> {
    pub classes: &'static Classes,
    names: &'a Names,
    unknown: RefCell<Option<Py<PyAny>>>,
}

impl<'a> Reader<'a> {
    pub fn new(classes: &'static Classes, names: &'a Names) -> Self {
        Reader { classes, names, unknown: RefCell::new(None) }
    }

    /// The first name that is no component's, if there was one.
    pub fn unknown(self) -> Option<Py<PyAny>> {
        self.unknown.into_inner()
    }

    /// The index of a component; the core refuses that of what is none, where it meets it.
    pub fn component(&self, name: Object) -> usize {
        let component = self.names.index(name);
        if component == UNKNOWN {
            self.unknown.borrow_mut().get_or_insert_with(|| name.clone().unbind());
        }
        component
    }

    pub fn boundary(&self, object: Object) -> PyResult<Boundary> {
        let [node, length, epoch] = self.classes.records.boundary.fields(object);
        let [index, generation] = self.classes.records.node.fields(&node?);
        Ok(Boundary {
            node: NodeRef { index: whole(&index?)?, generation: whole(&generation?)? },
            length: whole(&length?)?,
            epoch: whole(&epoch?)?,
        })
    }

    pub fn lease(&self, object: Object) -> PyResult<i64> {
        whole(&self.classes.records.lease.field(object, 0)?)
    }

    pub fn job(&self, object: Object) -> PyResult<i64> {
        whole(&self.classes.records.job.field(object, 0)?)
    }

    /// Any tier that the core has a word for; what is none of them is taken for the one outside the tree.
    pub fn tier(&self, object: Object) -> Tier {
        self.classes.enums.tiers.value(object).unwrap_or(Tier::External)
    }

    /// Where a transfer goes. Errors: `BAD_INSERT` for what is no tier.
    pub fn route(&self, source: Object, target: Object) -> Result<(Tier, Tier), Fault> {
        let tiers = &self.classes.enums.tiers;
        let route = tiers.value(source).zip(tiers.value(target));
        route.ok_or(Fault::refused(Kind::BadInsert, "data move between the tiers of `TierName`"))
    }

    pub fn mode(&self, object: Object) -> Result<ReleaseMode, Fault> {
        self.classes.enums.modes.value(object).ok_or(Fault::BadRequest("a close is one of `ReleaseMode`"))
    }

    pub fn pieces(&self, objects: Object) -> Result<Vec<Piece>, Fault> {
        let mut pieces = Vec::new();
        for object in objects.try_iter()? {
            pieces.push(self.piece(&object?)?);
        }
        Ok(pieces)
    }

    fn piece(&self, object: Object) -> Result<Piece, Fault> {
        let [component, start, end, slots] = self.classes.records.piece.fields(object);
        Ok(Piece {
            component: self.component(&component?),
            start: whole(&start?)?,
            end: whole(&end?)?,
            slots: slots_in(&slots?)?.numbers().to_vec(),
        })
    }

    pub fn turn(&self, object: Object) -> Result<Turn, Fault> {
        let [frontier, alternate, start_seq, finish_seq, superseded] =
            self.classes.records.turn.fields(object);
        Ok(Turn {
            frontier: optional(&frontier?, |frontier| self.boundary(frontier))?,
            alternate: optional(&alternate?, |alternate| self.boundary(alternate))?,
            start_seq: kept(&start_seq?)?,
            finish_seq: kept(&finish_seq?)?,
            superseded: superseded?.is_truthy()?,
        })
    }

    pub fn wait(&self, object: Object) -> Result<Wait, Fault> {
        let [state, since_ns, key_ns, hint_ns, seq, eta_ns] = self.classes.records.wait.fields(object);
        let (since_ns, key_ns, seq) = (kept(&since_ns?)?, kept(&key_ns?)?, kept(&seq?)?);
        let (hint_ns, eta_ns) = (optional(&hint_ns?, kept)?, optional(&eta_ns?, kept)?);
        let state = self.classes.enums.waits.value(&state?);
        Ok(match state.ok_or(Fault::BadRequest("a session is in one of `WaitState`"))? {
            WaitState::Running => Wait::Running { key_ns },
            WaitState::Pending => Wait::Pending { seq, eta_ns },
            WaitState::Idle => Wait::Idle { since_ns, key_ns, hint_ns },
        })
    }

    /// Numbers by component, 0 where there is none.
    pub fn room(&self, object: Object) -> PyResult<Vec<i64>> {
        let py = object.py();
        let room = object.cast::<pyo3::types::PyDict>()?;
        let mut slots = vec![0; self.names.len()];
        if room.is_empty() {
            return Ok(slots);
        }
        for (component, free) in slots.iter_mut().enumerate() {
            if let Some(value) = room.get_item(self.names.known(py, component))? {
                *free = whole(&value)?;
            }
        }
        Ok(slots)
    }
}

/// Slots, to be borrowed. Errors: `BAD_INSERT` for anything but a flat int32 array.
pub fn slots_in(slots: Object) -> Result<View, Fault> {
    let mut view = View::empty();
    if view.take(slots) {
        return Ok(view);
    }
    Err(Fault::refused(Kind::BadInsert, "slots are one flat, contiguous array of int32"))
}

pub fn optional<'py, R, E>(
    object: &Bound<'py, PyAny>,
    read: impl FnOnce(&Bound<'py, PyAny>) -> Result<R, E>,
) -> Result<Option<R>, E> {
    if object.is_none() { Ok(None) } else { read(object).map(Some) }
}

/// A count or a handle: beyond 64 bits it is as good as the largest.
pub fn whole(object: Object) -> PyResult<i64> {
    Ok(integer(object)?.0)
}

/// A number that is kept as it is. Errors: `BAD_REQUEST` beyond 64 bits.
pub fn kept(object: Object) -> Result<i64, Fault> {
    match integer(object)? {
        (number, false) => Ok(number),
        (_, true) => {
            Err(Fault::BadRequest("times, generations, places in a queue and priorities fit into 64 bits"))
        }
    }
}
