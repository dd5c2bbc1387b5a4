//! What the components and pools of one core are called.

use agentcache_core::Tier;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::classes::Classes;

/// The index of what is no component.
pub const UNKNOWN: usize = usize::MAX;

const TIERS: [Tier; 3] = [Tier::Device, Tier::Host, Tier::External];

struct Name {
    object: Py<PyString>,
    text: String,
    pools: [Py<PyAny>; 3],
}

pub struct Names(Vec<Name>);

impl Names {
    pub fn new(py: Python<'_>, texts: &[Bound<'_, PyString>]) -> PyResult<Self> {
        let classes = Classes::get(py)?;
        let mut names = Vec::with_capacity(texts.len());
        for text in texts {
            let mut pools = Vec::with_capacity(TIERS.len());
            for tier in TIERS {
                let tier = classes.enums.tiers.object(py, tier);
                pools.push(classes.records.pool.build(py, [text.clone().into_any(), tier])?.unbind());
            }
            let pools = pools.try_into().expect("one pool a tier");
            names.push(Name { object: text.clone().unbind(), text: text.to_str()?.to_owned(), pools });
        }
        Ok(Names(names))
    }

    /// Of no core yet.
    pub fn none() -> Self {
        Names(Vec::new())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The index of a component by its name; `UNKNOWN` for what is none.
    pub fn index(&self, name: &Bound<'_, PyAny>) -> usize {
        let same = self.0.iter().position(|known| known.object.is(name));
        let equal = || {
            let text = name.cast::<PyString>().ok()?.to_str().ok()?;
            self.0.iter().position(|known| known.text == text)
        };
        same.or_else(equal).unwrap_or(UNKNOWN)
    }

    /// All of them, for a person to read.
    pub fn all(&self) -> String {
        self.0.iter().map(|name| name.text.as_str()).collect::<Vec<_>>().join(", ")
    }

    pub fn name<'py>(&self, py: Python<'py>, component: usize) -> Option<Bound<'py, PyAny>> {
        self.0.get(component).map(|name| name.object.bind(py).clone().into_any())
    }

    /// The name of a component that the core has.
    pub fn known<'py>(&self, py: Python<'py>, component: usize) -> Bound<'py, PyAny> {
        self.0[component].object.bind(py).clone().into_any()
    }

    pub fn pool<'py>(&self, py: Python<'py>, component: usize, tier: Tier) -> Bound<'py, PyAny> {
        self.0[component].pools[tier as usize].bind(py).clone()
    }
}
