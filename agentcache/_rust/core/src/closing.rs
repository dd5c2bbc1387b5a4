//! What a close may do beyond letting go: drop or demote what only that session referenced.

use crate::arena::{FULL, NodeId, ORIGIN};
use crate::changes::Changes;
use crate::coverage::Positions;
use crate::jobs::{JobTable, Place, Terms};
use crate::trie::Trie;
use crate::values::Tier;

const DEVICE: Tier = Tier::Device;
const HOST: Tier = Tier::Host;

/// Free whole pages from the tips up: unreferenced, unprotected, and carrying nothing.
pub fn drop_released(trie: &mut Trie, positions: &Positions, changes: &mut Changes) {
    for id in deepest_first(trie, positions) {
        if trie.arena.node(id).children == 0 && nobody_needs(trie, id) {
            trie.remove(id, changes);
        }
    }
}

/// Send device copies down; those with a host copy are freed at once, the others stay if they do not land.
pub fn demote_released(trie: &mut Trie, jobs: &mut JobTable, positions: &Positions, changes: &mut Changes) {
    let mut nodes = Vec::new();
    for id in deepest_first(trie, positions) {
        if let Some(free) = above_what_is_needed(trie, id) {
            nodes.push(free);
        }
    }
    let terms = Terms { leaving: true, keep_unlanded: true };
    for path in by_path(trie, &nodes) {
        let mut places: Vec<Place> = Vec::new();
        for id in path {
            let bare = |at: &usize| trie.has(id, *at, DEVICE) && !trie.has(id, *at, HOST);
            places.extend(trie.components().filter(bare).map(|component| (id, component)));
        }
        jobs.plan(trie, &mut places, (DEVICE, HOST), terms, changes);
    }
    for id in nodes {
        free_backed(trie, id, changes);
    }
}

fn free_backed(trie: &mut Trie, id: NodeId, changes: &mut Changes) {
    for component in trie.components().rev() {
        let cell = trie.arena.cell(id, component);
        let backed =
            trie.has(id, component, DEVICE) && trie.has(id, component, HOST) && !cell.protected(DEVICE);
        if !backed {
            continue;
        }
        let carries = trie.components().any(|other| other != FULL && trie.has(id, other, DEVICE));
        if component != FULL || (!carries && trie.candidate(id, FULL, DEVICE)) {
            trie.lose(id, component, DEVICE, changes);
        }
    }
}

/// The nodes at these positions, each once, deepest first, then oldest.
fn deepest_first(trie: &Trie, positions: &Positions) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = positions.iter().map(|(_, id)| *id).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes.sort_by_key(|id| (std::cmp::Reverse(trie.end(*id)), trie.arena.node(*id).birth));
    nodes
}

/// No session references the pages of a run, no lease or job protects any of their copies.
fn nobody_needs(trie: &Trie, id: NodeId) -> bool {
    trie.components().all(|component| is_free(trie, id, component))
}

fn is_free(trie: &Trie, id: NodeId, component: usize) -> bool {
    let cell = trie.arena.cell(id, component);
    cell.live == 0 && trie.config.tiers().iter().all(|tier| !cell.protected(*tier))
}

/// The part of a run that nobody needs: a state that is needed keeps the last page.
fn above_what_is_needed(trie: &mut Trie, id: NodeId) -> Option<NodeId> {
    if nobody_needs(trie, id) {
        return Some(id);
    }
    let pages = trie.components().filter(|component| !trie.is_state(*component));
    if pages.into_iter().any(|component| !is_free(trie, id, component)) || trie.width(id, FULL) == 1 {
        return None;
    }
    Some(trie.cut(id, trie.end(id) - trie.config.page_tokens))
}

/// Group nodes into root-to-tip paths, each node once, by the order of the tips.
fn by_path(trie: &Trie, nodes: &[NodeId]) -> Vec<Vec<NodeId>> {
    let mut left: Vec<NodeId> = nodes.to_vec();
    left.sort_unstable();
    let mut groups = Vec::new();
    for tip in nodes {
        let (mut at, mut path) = (*tip, Vec::new());
        if left.binary_search(tip).is_err() {
            continue;
        }
        while at != ORIGIN {
            if let Ok(place) = left.binary_search(&at) {
                left.remove(place);
                path.push(at);
            }
            at = trie.parent(at);
        }
        groups.push(path);
    }
    groups
}
