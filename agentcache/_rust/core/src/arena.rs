//! Nodes by number: topology, and per component one cell of what a run has and owes.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::runs::{Slots, Tokens};
use crate::values::{NamespaceId, PageHash, Tier};

pub type NodeId = u32;

/// No node, no anchor, no seat.
pub const NONE: u32 = u32::MAX;
/// The node above every path; it has no pages.
pub const ORIGIN: NodeId = 0;
/// FULL is the first component.
pub const FULL: usize = 0;

/// A session in a queue, soonest first: class and value of its place (`ranking.rs`), and its number.
pub type Queued = (Reverse<u8>, Reverse<i64>, u32);

/// A node that may be gone: numbers are used again, with another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeKey {
    pub id: NodeId,
    pub generation: u32,
}

/// What one component has and owes on the pages of a run. A checkpoint's is about the page at the run's end.
#[derive(Clone, Debug)]
#[expect(clippy::box_collection, reason = "eight bytes for a set that is nearly always absent")]
pub struct Cell {
    pub slots: [Slots; 2],
    /// Jobs that read the copy on a tier.
    pub claims: [u32; 2],
    /// Leases; they protect the device copy.
    pub locks: u32,
    /// Sessions with a marker whose region holds this.
    pub live: u32,
    /// The sum of their numbers: where there is one, its number.
    pub whose: u32,
    pub hits: u32,
    pub used_ns: i64,
    /// The largest expected key that was noted while several sessions wanted it (`ert`).
    pub noted_ns: i64,
    /// Sequence of the last use: used since a job was planned?
    pub touched: u64,
    /// Those of its sessions that wait in a queue (`ert`); of FULL, those whose branch ends here.
    pub pending: Option<Box<BTreeSet<Queued>>>,
    /// What the copy on a tier was last counted as.
    pub counted: [u8; 2],
    /// The last session that wanted it has let go of it.
    pub released: bool,
}

impl Default for Cell {
    fn default() -> Self {
        Cell {
            slots: [Slots::Absent, Slots::Absent],
            claims: [0; 2],
            locks: 0,
            live: 0,
            whose: 0,
            hits: 0,
            used_ns: 0,
            noted_ns: 0,
            touched: 0,
            pending: None,
            counted: [0; 2],
            released: false,
        }
    }
}

impl Cell {
    /// A lease protects device copies, a job the copies that it reads.
    pub fn protected(&self, tier: Tier) -> bool {
        self.claims[tier as usize] > 0 || (tier == Tier::Device && self.locks > 0)
    }
}

/// Tokens `[start, end)` of one path, below `parent`.
#[derive(Clone, Debug)]
#[expect(clippy::box_collection, reason = "eight bytes for a list that is nearly always absent")]
pub struct Node {
    pub parent: NodeId,
    pub first: NodeId,
    pub last: NodeId,
    pub next: NodeId,
    pub prev: NodeId,
    pub children: u32,
    pub start: u32,
    pub end: u32,
    pub tokens: Tokens,
    pub namespace: NamespaceId,
    pub generation: u32,
    /// Which insert made it. Two pages at one depth never share it.
    pub birth: u64,
    pub priority: i64,
    /// Jobs with a claim at or below this node.
    pub jobs_below: u32,
    /// Which components have a copy here, a bit each, by tier.
    pub resident: [u64; 2],
    /// Children with FULL on a tier.
    pub carrying: [u32; 2],
    /// Children whose FULL device copy leaves in the running call.
    pub leaving: u32,
    /// The first of the markers' boundaries that end here.
    pub anchors: u32,
    pub going: bool,
    pub marked: bool,
    pub alive: bool,
    /// One hash a page, once somebody asked.
    pub hashes: Option<Box<Vec<PageHash>>>,
}

impl Node {
    fn new(namespace: NamespaceId, range: (u32, u32), tokens: Tokens, birth: u64) -> Self {
        Node {
            parent: ORIGIN,
            first: NONE,
            last: NONE,
            next: NONE,
            prev: NONE,
            children: 0,
            start: range.0,
            end: range.1,
            tokens,
            namespace,
            generation: 0,
            birth,
            priority: 0,
            jobs_below: 0,
            resident: [0; 2],
            carrying: [0; 2],
            leaving: 0,
            anchors: NONE,
            going: false,
            marked: false,
            alive: true,
            hashes: None,
        }
    }

    pub fn edge(&self) -> &[i32] {
        self.tokens.first(self.end - self.start)
    }
}

/// Nodes and cells in two arrays, children filed by (parent, namespace, first page).
#[derive(Debug)]
pub struct Arena {
    pub nodes: Vec<Node>,
    cells: Vec<Cell>,
    width: usize,
    page: u32,
    vacant: Vec<NodeId>,
    files: HashTable<NodeId>,
    state: RandomState,
}

impl Arena {
    pub fn new(components: usize, page: u32) -> Self {
        let mut arena = Arena {
            nodes: Vec::new(),
            cells: Vec::new(),
            width: components,
            page,
            vacant: Vec::new(),
            files: HashTable::new(),
            state: RandomState::default(),
        };
        arena.place(Node::new(0, (0, 0), Tokens::new(&[]), 0));
        arena
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id as usize]
    }

    pub fn cell(&self, id: NodeId, component: usize) -> &Cell {
        &self.cells[id as usize * self.width + component]
    }

    pub fn cell_mut(&mut self, id: NodeId, component: usize) -> &mut Cell {
        &mut self.cells[id as usize * self.width + component]
    }

    /// The node's number among all cells, for tables beside this one.
    pub fn cell_number(&self, id: NodeId, component: usize) -> usize {
        id as usize * self.width + component
    }

    pub fn cell_count(&self) -> usize {
        self.cells.len()
    }

    pub fn key(&self, id: NodeId) -> NodeKey {
        NodeKey { id, generation: self.node(id).generation }
    }

    pub fn holds(&self, key: NodeKey) -> bool {
        self.nodes.get(key.id as usize).is_some_and(|node| node.alive && node.generation == key.generation)
    }

    /// Every node but the origin.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + '_ {
        (1..self.nodes.len() as NodeId).filter(|id| self.node(*id).alive)
    }

    pub fn children(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let mut at = self.node(id).first;
        std::iter::from_fn(move || {
            let child = at;
            (child != NONE).then(|| {
                at = self.node(child).next;
                child
            })
        })
    }

    // -- filing

    fn file(&self, parent: NodeId, namespace: NamespaceId, page: &[i32]) -> u64 {
        let mut hasher = self.state.build_hasher();
        hasher.write_u64(u64::from(parent) << 32 | u64::from(namespace));
        page.hash(&mut hasher);
        hasher.finish()
    }

    fn own_file(&self, id: NodeId) -> u64 {
        let node = self.node(id);
        self.file(node.parent, node.namespace, node.tokens.first(self.page))
    }

    /// The child of `parent` that begins with `page`. Below a path namespaces cannot differ.
    pub fn child(&self, parent: NodeId, namespace: NamespaceId, page: &[i32]) -> Option<NodeId> {
        let begins = |id: NodeId| {
            let node = self.node(id);
            node.parent == parent && node.namespace == namespace && node.tokens.first(self.page) == page
        };
        let above = self.node(parent);
        match above.children {
            0 => None,
            1 => Some(above.first).filter(|only| begins(*only)),
            _ => self.files.find(self.file(parent, namespace, page), |id| begins(*id)).copied(),
        }
    }

    fn enter(&mut self, id: NodeId) {
        let hash = self.own_file(id);
        let files = std::mem::take(&mut self.files);
        self.files = {
            let mut files = files;
            files.insert_unique(hash, id, |other| self.own_file(*other));
            files
        };
    }

    fn withdraw(&mut self, id: NodeId) {
        let hash = self.own_file(id);
        if let Ok(entry) = self.files.find_entry(hash, |other| *other == id) {
            entry.remove();
        }
    }

    // -- changing

    fn place(&mut self, node: Node) -> NodeId {
        if let Some(id) = self.vacant.pop() {
            let generation = self.node(id).generation;
            *self.node_mut(id) = Node { generation, ..node };
            return id;
        }
        self.nodes.push(node);
        self.cells.resize_with(self.nodes.len() * self.width, Cell::default);
        (self.nodes.len() - 1) as NodeId
    }

    /// A new last child of `parent`, without data.
    pub fn grow(
        &mut self,
        parent: NodeId,
        namespace: NamespaceId,
        tokens: Tokens,
        end: u32,
        birth: u64,
    ) -> NodeId {
        let start = self.node(parent).end;
        let id = self.place(Node::new(namespace, (start, end), tokens, birth));
        let last = self.node(parent).last;
        let node = self.node_mut(id);
        node.parent = parent;
        node.prev = last;
        if last == NONE {
            self.node_mut(parent).first = id;
        } else {
            self.node_mut(last).next = id;
        }
        self.node_mut(parent).last = id;
        self.node_mut(parent).children += 1;
        self.enter(id);
        id
    }

    /// Cut a node at `at`; the upper half is new and takes its place, `id` stays the lower half.
    /// Cells are the caller's to divide.
    pub fn cut(&mut self, id: NodeId, at: u32) -> NodeId {
        self.withdraw(id);
        let lower = self.node(id);
        let mut node = Node::new(lower.namespace, (lower.start, at), lower.tokens.clone(), lower.birth);
        node.parent = lower.parent;
        node.prev = lower.prev;
        node.next = lower.next;
        node.priority = lower.priority;
        node.jobs_below = lower.jobs_below;
        node.children = 1;
        node.first = id;
        node.last = id;
        let taken = (at - lower.start) / self.page;
        let upper = self.place(node);
        let (parent, prev, next) = (self.node(id).parent, self.node(id).prev, self.node(id).next);
        if prev == NONE {
            self.node_mut(parent).first = upper;
        } else {
            self.node_mut(prev).next = upper;
        }
        if next == NONE {
            self.node_mut(parent).last = upper;
        } else {
            self.node_mut(next).prev = upper;
        }
        let lower = self.node_mut(id);
        let below = lower.hashes.as_mut().map(|hashes| hashes.split_off(taken as usize));
        let above = std::mem::replace(&mut lower.hashes, below.map(Box::new));
        lower.tokens = lower.tokens.after(at - lower.start);
        lower.start = at;
        lower.parent = upper;
        lower.prev = NONE;
        lower.next = NONE;
        self.node_mut(upper).hashes = above;
        self.enter(upper);
        self.enter(id);
        upper
    }

    /// Take a node without children out. Its cells must be empty.
    pub fn remove(&mut self, id: NodeId) {
        self.withdraw(id);
        let (parent, prev, next) = (self.node(id).parent, self.node(id).prev, self.node(id).next);
        if prev == NONE {
            self.node_mut(parent).first = next;
        } else {
            self.node_mut(prev).next = next;
        }
        if next == NONE {
            self.node_mut(parent).last = prev;
        } else {
            self.node_mut(next).prev = prev;
        }
        self.node_mut(parent).children -= 1;
        let mut above = parent;
        while above != ORIGIN {
            let node = self.node(above);
            if !node.tokens.shares(&self.node(id).tokens) || !node.tokens.wasteful(node.end - node.start) {
                break;
            }
            let (tokens, next) = (Tokens::new(node.edge()), node.parent);
            self.node_mut(above).tokens = tokens;
            above = next;
        }
        let node = self.node_mut(id);
        node.alive = false;
        node.generation = node.generation.wrapping_add(1);
        node.tokens = Tokens::new(&[]);
        node.hashes = None;
        for component in 0..self.width {
            *self.cell_mut(id, component) = Cell::default();
        }
        self.vacant.push(id);
    }
}
