//! The one error of the core: a broken promise with a kind of the closed list of `errors.py`.

use std::fmt;

/// What was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    StaleBoundary,
    LeaseReused,
    UnknownJob,
    UnknownComponent,
    Unaligned,
    BadInsert,
    NotResident,
    InUse,
    BadConfig,
}

/// A refused call. It changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub kind: Kind,
    /// What to do about it.
    pub message: &'static str,
    /// Plain values that say where.
    pub facts: Vec<(&'static str, i64)>,
    /// The component concerned, by its index in the config.
    pub component: Option<usize>,
}

impl Error {
    #[must_use]
    pub fn new(kind: Kind, message: &'static str) -> Self {
        Error { kind, message, facts: Vec::new(), component: None }
    }

    #[must_use]
    pub fn fact(mut self, name: &'static str, value: impl Into<i64>) -> Self {
        self.facts.push((name, value.into()));
        self
    }

    #[must_use]
    pub fn of(mut self, component: usize) -> Self {
        self.component = Some(component);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)?;
        self.facts.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

impl std::error::Error for Error {}

pub type Result<T> = std::result::Result<T, Error>;
