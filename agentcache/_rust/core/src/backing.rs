//! A backup that fits: the region's pieces that find room on the host, and what makes way for them there.

use crate::arena::{FULL, NodeId};
use crate::changes::Changes;
use crate::jobs::{JobTable, Place, Terms, span};
use crate::rooms::{Guest, HostRoom};
use crate::trie::Trie;
use crate::values::{Job, Tier};

const ROUTE: (Tier, Tier) = (Tier::Device, Tier::Host);

/// A position, not a node: who makes way may be cut out of the same path.
type Stretch = (usize, (u32, u32));

/// A copy to the host of the region pieces at `node` that are on the device alone and find room there.
///
/// They are asked one by one, FULL before the others, each from the shallowest on. The regions' own host copies do not
/// make way: they count as claimed while room is made.
pub fn plan_fitting(
    trie: &mut Trie,
    jobs: &mut JobTable,
    node: NodeId,
    mut room: HostRoom,
    changes: &mut Changes,
) -> Option<Job> {
    trie.cut_regions(node);
    if fits(trie, node, &room) {
        return jobs.plan_region(trie, node, ROUTE, changes);
    }
    claim_regions(trie, node, 1);
    let mut found = Vec::new();
    for component in trie.components() {
        for id in lacking(trie, node, component) {
            fill(trie, &mut room, (id, component), &mut found, changes);
        }
    }
    claim_regions(trie, node, -1);
    let mut places = places(trie, node, &found);
    jobs.plan(trie, &mut places, ROUTE, Terms::default(), changes)
}

/// The nodes of a component's region that are to be copied, shallowest first.
fn lacking(trie: &mut Trie, node: NodeId, component: usize) -> Vec<NodeId> {
    let mut nodes = Vec::new();
    trie.region(component, node, &mut nodes);
    nodes.retain(|at| trie.has(*at, component, ROUTE.0) && !trie.has(*at, component, ROUTE.1));
    nodes.reverse();
    nodes
}

/// Whether there is room for everything, so that nobody need make way.
fn fits(trie: &mut Trie, node: NodeId, room: &HostRoom) -> bool {
    trie.components().all(|component| {
        let wanted = lacking(trie, node, component);
        let slots: i64 = wanted.iter().map(|at| i64::from(trie.width(*at, component))).sum();
        slots <= room.free(component)
    })
}

/// Count a claim on the host copies of the regions at `node` in or out.
fn claim_regions(trie: &mut Trie, node: NodeId, by: i32) {
    let mut nodes = Vec::new();
    for component in trie.components() {
        trie.region(component, node, &mut nodes);
        for at in &nodes {
            if trie.has(*at, component, ROUTE.1) {
                trie.claim(*at, component, ROUTE.1, by);
            }
        }
    }
}

/// Ask for the pages of a run, or its state: first what is free, then page by page, without cutting the run.
fn fill(
    trie: &mut Trie,
    room: &mut HostRoom,
    (id, component): Place,
    found: &mut Vec<Stretch>,
    changes: &mut Changes,
) {
    let (page, (mut start, end)) = (trie.config.page_tokens, span(trie, id, component));
    if trie.is_state(component) {
        if room.take(trie, Guest { id, end, component }, &[], changes) {
            found.push((component, (end, end)));
        }
        return;
    }
    if component == FULL && start + page < end && trie.tip_stands_apart(id) {
        let above = trie.cut(id, end - page);
        fill(trie, room, (above, component), found, changes);
        start = end - page;
    }
    let free = room.take_free(component, i64::from((end - start) / page)) as u32 * page;
    if free > 0 {
        note(found, component, (start, start + free));
    }
    start += free;
    while start < end {
        if room.take(trie, Guest { id, end: start + page, component }, &[], changes) {
            note(found, component, (start, start + page));
            start += page;
        } else {
            // Deeper pages of the run rank lower still; only below the last one may be what needs it.
            start = if start + page < end { end - page } else { end };
        }
    }
}

/// One more stretch, joined with the one before where it goes on.
fn note(found: &mut Vec<Stretch>, component: usize, (start, end): (u32, u32)) {
    match found.last_mut() {
        Some((before, range)) if *before == component && range.1 == start => range.1 = end,
        _ => found.push((component, (start, end))),
    }
}

/// The nodes of these stretches of the path to `node`, cut where they begin and end.
fn places(trie: &mut Trie, node: NodeId, found: &[Stretch]) -> Vec<Place> {
    for (_, (start, end)) in found {
        trie.cut(node, *end);
        trie.cut(node, *start);
    }
    let (mut places, mut nodes) = (Vec::new(), Vec::new());
    for (component, (start, end)) in found {
        let tip = trie.cut(node, *end);
        if start == end {
            places.push((tip, *component));
        } else {
            trie.span(tip, *start, &mut nodes);
            places.extend(nodes.iter().map(|at| (*at, *component)));
        }
    }
    places
}
