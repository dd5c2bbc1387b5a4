//! The classes and enum members of the Python side, by field and member. Loaded when the module is imported; the import
//! fails where a class has other fields than the binding knows.

use agentcache_core::{EventKind, Kind, MissReason, Order, OrderBase, ReleaseMode, Tier};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};

use crate::arrays::Numpy;
use crate::records::Record;

/// What a session does, where a wait says so; `Wait` of the core has the figures with it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum WaitState {
    Running,
    Pending,
    Idle,
}

/// When the host gets a copy. Only one policy is the core's matter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum WritePolicy {
    Through,
    Selective,
    Back,
}

const fn count(fields: &[&str]) -> usize {
    fields.len()
}

macro_rules! records {
    ($($field:ident: $module:literal $class:ident ($($name:ident),*);)*) => {
        /// One record for each dataclass that crosses the edge.
        pub struct Records {
            $(pub $field: Record<{ count(&[$(stringify!($name)),*]) }>,)*
        }

        impl Records {
            fn load(py: Python<'_>) -> PyResult<Self> {
                Ok(Records {
                    $($field: Record::load(
                        &py.import(concat!("agentcache.", $module))?, stringify!($class), [$(stringify!($name)),*],
                    )?,)*
                })
            }
        }
    };
}

records! {
    config: "tree.api" CoreConfig(
        page_tokens, specs, grid_tokens, order, base, write_policy, host_tier, emit_events, max_markers,
        unclaimed_ns
    );
    spec: "types" ComponentSpec(name, rule, needs, slot_bytes);
    path: "types" Path();
    window: "types" Window(tokens);
    checkpoint: "types" Checkpoint(grid_tokens);
    key: "keys" Key(tokens, namespace);
    namespace: "keys" Namespace(tenant_salt, model, adapter, dtype, layout);
    insert: "types" Insert(full, pieces, after, tier, priority, full_from);
    turn: "types" Turn(frontier, alternate, start_seq, finish_seq, superseded);
    wait: "types" Wait(state, since_ns, key_ns, hint_ns, seq, eta_ns);
    node: "types" NodeRef(index, generation);
    boundary: "types" Boundary(node, length, epoch);
    lease: "types" Lease(number);
    piece: "types" Piece(component, start, end, slots);
    job: "types" Job(number, source, target, pieces, leaving);
    pool: "types" PoolName(component, tier);
    miss: "types" Miss(component, position, reason);
    found: "types" MatchResult(device, any_tier, full_tokens, miss);
    locked: "types" Locked(lease, boundary, pieces);
    event: "types" Event(kind, tier, hashes, parent, tokens, component);
    free: "types" Free(pool, slots);
    transfer: "types" Move(job);
    emit: "types" Emit(event);
    inserted: "types" Inserted(frontier, taken, kept, effects);
    evicted: "types" Evicted(freed, moving, short, effects);
    planned: "types" Planned(job, lease, effects);
    committed: "types" Committed(landed, dropped, effects);
    held: "types" Held(component, tier, tokens, slots, shared_slots);
    released: "types" Released(mode, held, markers, effects);
    page: "views" PageView(path, namespace, slots, locks, references);
    marker: "views" MarkerView(session, generation, frontier, alternate, start_seq, finish_seq, left);
    snapshot: "views" Snapshot(pages, markers, leases, jobs, epoch);
    branch: "views" Branch(
        parent, start, end, namespace, resident, referenced, running, reusable, markers, used_ns
    );
    outline: "views" Outline(branches, more);
    count: "views" PoolCount(pool, cached, protected, referenced);
    stats: "views" CoreStats(pools, pages, leases, jobs, sessions, markers);
}

/// The members of a `StrEnum` that the core knows, with what they are there.
pub struct Members<T> {
    known: Vec<(T, Py<PyAny>, String)>,
}

impl<T: Copy + PartialEq> Members<T> {
    fn load(module: &Bound<'_, PyModule>, name: &str, members: &[(T, &str)]) -> PyResult<Self> {
        let class = module.getattr(name)?;
        let mut known = Vec::with_capacity(members.len());
        for (value, member) in members {
            let member = class.getattr(*member)?;
            let text = member.getattr("value")?.extract()?;
            known.push((*value, member.unbind(), text));
        }
        Ok(Members { known })
    }

    /// The member for a value.
    pub fn object<'py>(&self, py: Python<'py>, value: T) -> Bound<'py, PyAny> {
        let (_, member, _) =
            self.known.iter().find(|(known, ..)| *known == value).expect("every value has one");
        member.bind(py).clone()
    }

    /// The value of a member, or of a text that equals one.
    pub fn value(&self, object: &Bound<'_, PyAny>) -> Option<T> {
        let same = self.known.iter().find(|(_, member, _)| member.is(object));
        let equal = || {
            let text = object.cast::<PyString>().ok()?.to_str().ok()?;
            self.known.iter().find(|(.., known)| known == text)
        };
        same.or_else(equal).map(|(value, ..)| *value)
    }
}

macro_rules! enums {
    ($($field:ident: $module:literal $class:ident => $kind:ident { $($value:ident = $member:ident),* $(,)? })*) => {
        /// The enums that cross the edge.
        pub struct Enums {
            $(pub $field: Members<$kind>,)*
        }

        impl Enums {
            fn load(py: Python<'_>) -> PyResult<Self> {
                Ok(Enums {
                    $($field: Members::load(
                        &py.import(concat!("agentcache.", $module))?,
                        stringify!($class),
                        &[$(($kind::$value, stringify!($member))),*],
                    )?,)*
                })
            }
        }
    };
}

enums! {
    tiers: "types" TierName => Tier { Device = DEVICE, Host = HOST, External = EXTERNAL }
    reasons: "types" MissReason => MissReason {
        NotCached = NOT_CACHED, WindowGap = WINDOW_GAP, NoCheckpoint = NO_CHECKPOINT, OnHost = ON_HOST
    }
    modes: "types" ReleaseMode => ReleaseMode {
        Release = RELEASE, Demote = DEMOTE, Drop = DROP, Preview = PREVIEW
    }
    events: "types" EventKind => EventKind { Stored = STORED, Removed = REMOVED, Cleared = CLEARED }
    waits: "types" WaitState => WaitState { Running = RUNNING, Pending = PENDING, Idle = IDLE }
    orders: "tree.api" Order => Order { Lru = LRU, Session = SESSION, Ert = ERT }
    bases: "tree.api" OrderBase => OrderBase { Lru = LRU, Lfu = LFU, Priority = PRIORITY }
    policies: "tree.api" WritePolicy => WritePolicy {
        Through = WRITE_THROUGH, Selective = WRITE_THROUGH_SELECTIVE, Back = WRITE_BACK
    }
    kinds: "errors" Kind => Kind {
        StaleBoundary = STALE_BOUNDARY, LeaseReused = LEASE_REUSED, UnknownJob = UNKNOWN_JOB,
        UnknownComponent = UNKNOWN_COMPONENT, Unaligned = UNALIGNED, BadInsert = BAD_INSERT,
        NotResident = NOT_RESIDENT, InUse = IN_USE, BadConfig = BAD_CONFIG,
    }
}

/// Everything that the binding names on the Python side.
pub struct Classes {
    pub records: Records,
    pub enums: Enums,
    pub numpy: Numpy,
    pub no_slots: Py<PyAny>,
    pub error: Py<PyType>,
    pub bad_request: Py<PyAny>,
}

static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();

impl Classes {
    pub fn get(py: Python<'_>) -> PyResult<&'static Classes> {
        CLASSES.get_or_try_init(py, || {
            let errors = py.import("agentcache.errors")?;
            Ok(Classes {
                records: Records::load(py)?,
                enums: Enums::load(py)?,
                numpy: Numpy::load(py)?,
                no_slots: py.import("agentcache.types")?.getattr("NO_SLOTS")?.unbind(),
                error: errors.getattr("CacheError")?.cast_into()?.unbind(),
                bad_request: errors.getattr("Kind")?.getattr("BAD_REQUEST")?.unbind(),
            })
        })
    }
}
