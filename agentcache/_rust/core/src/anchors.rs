//! Where markers end: every boundary of a marker is listed at the node that ends there, so that a loss finds the
//! sessions that it concerns.

use crate::arena::{Arena, NONE, NodeId};

pub type AnchorId = u32;

/// One boundary of one marker. `length` stays when data below is lost, until the marker is repaired.
#[derive(Clone, Copy, Debug)]
pub struct Anchor {
    pub node: NodeId,
    pub length: u32,
    pub session: u32,
    next: AnchorId,
    prev: AnchorId,
}

#[derive(Debug, Default)]
pub struct Anchors {
    all: Vec<Anchor>,
    vacant: Vec<AnchorId>,
}

impl Anchors {
    pub fn get(&self, id: AnchorId) -> &Anchor {
        &self.all[id as usize]
    }

    pub fn add(&mut self, arena: &mut Arena, node: NodeId, length: u32, session: u32) -> AnchorId {
        let anchor = Anchor { node, length, session, next: NONE, prev: NONE };
        let id = if let Some(id) = self.vacant.pop() {
            self.all[id as usize] = anchor;
            id
        } else {
            self.all.push(anchor);
            (self.all.len() - 1) as AnchorId
        };
        self.link(arena, id, node);
        id
    }

    pub fn remove(&mut self, arena: &mut Arena, id: AnchorId) {
        let Anchor { node, next, prev, .. } = self.all[id as usize];
        if prev == NONE {
            arena.node_mut(node).anchors = next;
        } else {
            self.all[prev as usize].next = next;
        }
        if next != NONE {
            self.all[next as usize].prev = prev;
        }
        self.vacant.push(id);
    }

    /// Those at a node.
    pub fn at<'a>(&'a self, arena: &Arena, node: NodeId) -> impl Iterator<Item = &'a Anchor> + 'a {
        let mut at = arena.node(node).anchors;
        std::iter::from_fn(move || {
            let id = at;
            (id != NONE).then(|| {
                at = self.all[id as usize].next;
                &self.all[id as usize]
            })
        })
    }

    /// Hand the anchors of a node that goes to the one above it; answers their sessions.
    pub fn climb(&mut self, arena: &mut Arena, from: NodeId, to: NodeId) -> Vec<u32> {
        let mut sessions = Vec::new();
        while arena.node(from).anchors != NONE {
            let id = arena.node(from).anchors;
            arena.node_mut(from).anchors = self.all[id as usize].next;
            sessions.push(self.all[id as usize].session);
            self.link(arena, id, to);
        }
        sessions
    }

    fn link(&mut self, arena: &mut Arena, id: AnchorId, node: NodeId) {
        let next = std::mem::replace(&mut arena.node_mut(node).anchors, id);
        if next != NONE {
            self.all[next as usize].prev = id;
        }
        let anchor = &mut self.all[id as usize];
        anchor.node = node;
        anchor.prev = NONE;
        anchor.next = next;
    }
}
