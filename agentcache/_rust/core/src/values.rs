//! Plain values that cross the core's edge. Positions and lengths are tokens from the root; components are indices
//! into the config; slots are indices into a pool of one component on one tier.

/// Where bytes live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    Device,
    Host,
    External,
}

/// The tiers whose residency is in the tree, as indices of arrays.
pub const TREE_TIERS: [Tier; 2] = [Tier::Device, Tier::Host];

/// A namespace as this core knows it: the number that `TreeCore::namespace` gave it.
pub type NamespaceId = u32;

/// Whole pages of tokens in a namespace, borrowed for one call.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    pub tokens: &'a [i32],
    pub namespace: NamespaceId,
}

/// A handle of a node; `generation` parts it from earlier nodes at `index` and from nodes of other cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRef {
    pub index: i64,
    pub generation: i64,
}

/// A position on the path through `node`, valid for one `epoch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    pub node: NodeRef,
    pub length: i64,
    pub epoch: i64,
}

/// Why the boundary is not deeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissReason {
    NotCached,
    WindowGap,
    NoCheckpoint,
    OnHost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    pub component: usize,
    pub position: u32,
    pub reason: MissReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchResult {
    pub device: Boundary,
    pub any_tier: Boundary,
    pub full_tokens: u32,
    pub miss: Option<Miss>,
}

/// Slots of one component for tokens `[start, end)` of a path; one slot a page, or one state at start == end.
/// Offered ones may name anything; a component that does not exist is `usize::MAX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub component: usize,
    pub start: i64,
    pub end: i64,
    pub slots: Vec<i32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locked {
    pub lease: i64,
    pub boundary: Boundary,
    pub pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub number: i64,
    pub source: Tier,
    pub target: Tier,
    pub pieces: Vec<Piece>,
    pub leaving: bool,
}

/// What a request offers. `full` holds one slot a page from `full_from` to the end of the key; None: from the end of the
/// `after` lease. Pages before it have their FULL in the tree, on the device for an offer there.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    pub full: &'a [i32],
    pub pieces: &'a [Piece],
    pub after: Option<i64>,
    pub tier: Tier,
    pub priority: i64,
    pub full_from: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inserted {
    pub frontier: Boundary,
    pub taken: Vec<Piece>,
    pub kept: Vec<Piece>,
    pub effects: Vec<Effect>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evicted {
    pub freed: i64,
    pub moving: i64,
    pub short: i64,
    pub effects: Vec<Effect>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    pub job: Option<Job>,
    pub lease: Option<i64>,
    pub effects: Vec<Effect>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    pub landed: Vec<Piece>,
    pub dropped: Vec<Piece>,
    pub effects: Vec<Effect>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    pub frontier: Option<Boundary>,
    pub alternate: Option<Boundary>,
    pub start_seq: i64,
    pub finish_seq: i64,
    pub superseded: bool,
}

/// What one component holds on one tier for somebody: tokens (0 for states) and slots; `shared_slots` of them others
/// reference, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub component: usize,
    pub tier: Tier,
    pub tokens: i64,
    pub slots: i64,
    pub shared_slots: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseMode {
    Release,
    Demote,
    Drop,
    Preview,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    pub mode: ReleaseMode,
    pub held: Vec<Held>,
    pub markers: i64,
    pub effects: Vec<Effect>,
}

/// What a session is doing, for the `ert` order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A request of it runs; `key_ns` is since when, less the gap that was expected before it.
    Running { key_ns: i64 },
    /// A request of it waits as number `seq` of a queue, to start at `eta_ns` where the scheduler can tell.
    Pending { seq: i64, eta_ns: Option<i64> },
    /// It waits since `since_ns`; `key_ns` is that less the gap it is expected to take, `hint_ns` a gap it was told.
    Idle { since_ns: i64, key_ns: i64, hint_ns: Option<i64> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    Stored,
    Removed,
    Cleared,
}

pub type PageHash = [u8; 32];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub kind: EventKind,
    pub component: usize,
    pub tier: Tier,
    pub hashes: Vec<PageHash>,
    pub parent: Option<PageHash>,
    pub tokens: Vec<i32>,
}

/// What the caller does next, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Free { component: usize, tier: Tier, slots: Vec<i32> },
    Move(Job),
    Emit(Event),
}

/// One page position of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageView {
    pub path: Vec<i32>,
    pub namespace: PageHash,
    pub slots: Vec<(usize, Tier, i32)>,
    pub locks: Vec<(usize, i64)>,
    pub references: Vec<(usize, i64)>,
}

/// A path without forks; `resident` counts pages, of states their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    pub parent: i64,
    pub start: u32,
    pub end: u32,
    pub namespace: PageHash,
    pub resident: Vec<(usize, Tier, u32)>,
    pub referenced: u32,
    pub running: u32,
    pub reusable: u32,
    pub markers: u32,
    pub used_ns: i64,
}

/// The branches that were used last, each behind its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    pub branches: Vec<Branch>,
    pub more: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkerView {
    pub session: String,
    pub generation: i64,
    pub frontier: u32,
    pub alternate: u32,
    pub start_seq: i64,
    pub finish_seq: i64,
    pub left: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub pages: Vec<PageView>,
    pub markers: Vec<MarkerView>,
    pub leases: i64,
    pub jobs: i64,
    pub epoch: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolCount {
    pub component: usize,
    pub tier: Tier,
    pub cached: i64,
    pub protected: i64,
    pub referenced: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    pub pools: Vec<PoolCount>,
    /// Page positions, not nodes: how paths are cut is nobody's business.
    pub pages: i64,
    pub leases: i64,
    pub jobs: i64,
    pub sessions: i64,
    pub markers: i64,
}
