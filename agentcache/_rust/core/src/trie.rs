//! The runs themselves: the one room where residency and topology change.

use crate::anchors::Anchors;
use crate::arena::{Arena, FULL, NodeId, ORIGIN};
use crate::changes::Changes;
use crate::config::{Config, Rule};
use crate::error::{Error, Kind, Result};
use crate::hashing::Namespaces;
use crate::ranking::PoolIndex;
use crate::runs::{Slots, Tokens};
use crate::values::{Event, EventKind, NamespaceId, Tier, Wait};

/// Topology, residency, recency, and the owner of every slot.
///
/// Law: a node other than the origin exists if and only if its FULL is on the device or on the host.
#[derive(Debug)]
pub struct Trie {
    pub config: Config,
    pub arena: Arena,
    /// The components whose data are states, a bit each.
    pub states: u64,
    /// The windows: component and tokens.
    pub windows: Vec<(usize, u32)>,
    /// One index a component and tree tier.
    pub index: Vec<[PoolIndex; 2]>,
    pub marked: Vec<NodeId>,
    pub anchors: Anchors,
    /// What each session does, by its number (`ert`).
    pub waits: Vec<Option<Wait>>,
    pub namespaces: Namespaces,
    pub epoch: i64,
    pub tick: u64,
    /// When hinted pieces were last looked through.
    pub ranked_ns: i64,
    pub births: u64,
    pub pages: i64,
}

impl Trie {
    pub fn new(config: Config) -> Self {
        let components = config.rules.len();
        let (mut states, mut windows) = (0, Vec::new());
        for (component, rule) in config.rules.iter().enumerate() {
            match *rule {
                Rule::Path => {}
                Rule::Window { tokens } => windows.push((component, tokens)),
                Rule::Checkpoint { .. } => states |= 1 << component,
            }
        }
        Trie {
            states,
            windows,
            arena: Arena::new(components, config.page_tokens),
            index: (0..components).map(|_| [PoolIndex::default(), PoolIndex::default()]).collect(),
            config,
            marked: Vec::new(),
            anchors: Anchors::default(),
            waits: Vec::new(),
            namespaces: Namespaces::default(),
            epoch: 0,
            tick: 0,
            ranked_ns: 0,
            births: 0,
            pages: 0,
        }
    }

    // -- shapes

    pub fn components(&self) -> std::ops::Range<usize> {
        0..self.config.rules.len()
    }

    pub fn is_state(&self, component: usize) -> bool {
        self.states >> component & 1 == 1
    }

    /// The start of a component's region at a boundary; of a checkpoint, the boundary itself.
    pub fn region_start(&self, component: usize, boundary: u32) -> u32 {
        match self.config.rules[component] {
            Rule::Path => 0,
            Rule::Window { tokens } => self.floor_page(boundary.saturating_sub(tokens)),
            Rule::Checkpoint { .. } => boundary,
        }
    }

    pub fn floor_page(&self, tokens: u32) -> u32 {
        tokens - tokens % self.config.page_tokens
    }

    pub fn floor_grid(&self, tokens: u32) -> u32 {
        tokens - tokens % self.config.grid_tokens
    }

    /// Errors: `UnknownComponent`.
    pub fn known(&self, component: usize) -> Result<usize> {
        if component < self.config.rules.len() {
            return Ok(component);
        }
        Err(Error::new(Kind::UnknownComponent, "this tree has no such component"))
    }

    /// How many slots a component's copy on this node has: one a page, or one state.
    pub fn width(&self, id: NodeId, component: usize) -> u32 {
        let node = self.arena.node(id);
        if self.is_state(component) { 1 } else { (node.end - node.start) / self.config.page_tokens }
    }

    pub fn has(&self, id: NodeId, component: usize, tier: Tier) -> bool {
        tier != Tier::External && self.arena.node(id).resident[tier as usize] >> component & 1 == 1
    }

    pub fn slots(&self, id: NodeId, component: usize, tier: Tier) -> &[i32] {
        self.arena.cell(id, component).slots[tier as usize].first(self.width(id, component))
    }

    pub fn end(&self, id: NodeId) -> u32 {
        self.arena.node(id).end
    }

    pub fn parent(&self, id: NodeId) -> NodeId {
        self.arena.node(id).parent
    }

    // -- changing

    /// A new run below `parent`; the caller attaches its FULL at once.
    pub fn grow(&mut self, parent: NodeId, namespace: NamespaceId, tokens: Tokens, end: u32) -> NodeId {
        let id = self.arena.grow(parent, namespace, tokens, end, self.births);
        self.pages += i64::from(self.width(id, FULL));
        id
    }

    /// The tree now owns these slots. The place must be empty.
    pub fn attach(&mut self, id: NodeId, component: usize, tier: Tier, slots: Slots, changes: &mut Changes) {
        self.lift(id);
        let width = self.width(id, component);
        self.index[component][tier as usize].owned.insert_all(slots.first(width));
        let cell = self.arena.cell_mut(id, component);
        cell.slots[tier as usize] = slots;
        self.arena.node_mut(id).resident[tier as usize] |= 1 << component;
        self.around(id);
        if component == FULL {
            let parent = self.parent(id);
            self.arena.node_mut(parent).carrying[tier as usize] += 1;
        }
        if self.config.emit_events {
            self.tell_stored(id, component, tier, changes);
        }
    }

    fn tell_stored(&mut self, id: NodeId, component: usize, tier: Tier, changes: &mut Changes) {
        if component != FULL {
            changes.stored(component, tier, self.hashes(id, component));
            return;
        }
        let above = self.hash_above(id);
        let hashes = self.hashes(id, component).to_vec();
        let node = self.arena.node(id);
        let (parent, tokens) = ((node.parent != ORIGIN).then_some(above), node.edge().to_vec());
        let event = Event { kind: EventKind::Stored, component, tier, hashes, parent, tokens };
        changes.stored_path(event, self.arena.key(id), self.arena.key(node.parent));
    }

    /// Free one copy. A node that loses its last FULL goes, with all that lies below it.
    pub fn lose(&mut self, id: NodeId, component: usize, tier: Tier, changes: &mut Changes) {
        self.free_copy(id, component, tier, changes);
        if !self.anywhere(id, FULL) {
            self.remove(id, changes);
        } else if component != FULL && !self.anywhere(id, component) {
            self.disturb(id, component, changes);
        }
    }

    /// Free every copy at and below a node, deepest first, and take the nodes out of the tree.
    pub fn remove(&mut self, id: NodeId, changes: &mut Changes) {
        let (mut order, mut stack) = (Vec::new(), vec![id]);
        while let Some(at) = stack.pop() {
            order.push(at);
            stack.extend(self.arena.children(at));
        }
        for at in order.into_iter().rev() {
            for component in self.components() {
                for tier in [Tier::Device, Tier::Host] {
                    if self.has(at, component, tier) {
                        self.free_copy(at, component, tier, changes);
                    }
                }
            }
            let parent = self.parent(at);
            let sessions = self.anchors.climb(&mut self.arena, at, parent);
            changes.disturbed.extend(sessions);
            changes.above.insert(self.arena.key(at), self.arena.key(parent));
            self.pages -= i64::from(self.width(at, FULL));
            self.lift(at);
            self.set_going(at, false);
            self.arena.node_mut(at).marked = false;
            self.arena.remove(at);
        }
    }

    fn free_copy(&mut self, id: NodeId, component: usize, tier: Tier, changes: &mut Changes) {
        self.lift(id);
        let width = self.width(id, component);
        let slots = std::mem::take(&mut self.arena.cell_mut(id, component).slots[tier as usize]);
        self.arena.node_mut(id).resident[tier as usize] &= !(1 << component);
        changes.free(component, tier, slots.first(width));
        changes.dropped = true;
        self.index[component][tier as usize].owned.remove_all(slots.first(width));
        self.around(id);
        if component == FULL {
            let parent = self.parent(id);
            self.arena.node_mut(parent).carrying[tier as usize] -= 1;
        }
        if self.config.emit_events {
            changes.removed(component, tier, self.hashes(id, component));
        }
    }

    /// Whether FULL of this node leaves the device in the running call.
    pub fn set_going(&mut self, id: NodeId, going: bool) {
        let parent = self.parent(id);
        let node = self.arena.node_mut(id);
        if std::mem::replace(&mut node.going, going) != going {
            let above = self.arena.node_mut(parent);
            above.leaving = if going { above.leaving + 1 } else { above.leaving - 1 };
            self.mark(parent);
        }
    }

    /// Note the sessions whose boundaries need the aux data lost here.
    fn disturb(&mut self, id: NodeId, component: usize, changes: &mut Changes) {
        if self.arena.cell(id, component).live == 0 {
            return;
        }
        let reach = match self.config.rules[component] {
            Rule::Window { tokens } => {
                self.end(id).saturating_add(tokens).saturating_add(self.config.page_tokens)
            }
            _ => self.end(id),
        };
        let mut stack = vec![id];
        while let Some(at) = stack.pop() {
            changes.disturbed.extend(self.anchors.at(&self.arena, at).map(|anchor| anchor.session));
            if self.end(at) >= reach {
                continue;
            }
            stack.extend(self.arena.children(at).filter(|child| self.arena.cell(*child, component).live > 0));
        }
    }

    /// Mark exactly the regions of the boundary at the end of `id` as used now.
    pub fn touch(&mut self, id: NodeId, now_ns: i64, hit: bool) {
        let mut nodes = Vec::new();
        let tick = self.tick;
        for component in self.components() {
            self.region(component, id, &mut nodes);
            for at in &nodes {
                let cell = self.arena.cell_mut(*at, component);
                cell.used_ns = now_ns;
                cell.touched = tick;
                cell.hits = cell.hits.saturating_add(u32::from(hit));
                let was_released = std::mem::take(&mut cell.released);
                if component != FULL || was_released || self.may_be_tail(*at) {
                    self.mark(*at);
                }
            }
        }
    }

    pub fn raise_priority(&mut self, id: NodeId, priority: i64) {
        let mut at = id;
        while at != ORIGIN {
            let node = self.arena.node_mut(at);
            node.priority = node.priority.max(priority);
            self.mark(at);
            at = self.parent(at);
        }
    }

    /// Count one job's claim on a copy in (`by` = 1) or out (-1).
    pub fn claim(&mut self, id: NodeId, component: usize, tier: Tier, by: i32) {
        let claims = &mut self.arena.cell_mut(id, component).claims[tier as usize];
        *claims = claims.wrapping_add_signed(by);
        self.mark(id);
    }
}
