//! Snapshots and counts: everything observable, by position.

use crate::arena::{NodeId, ORIGIN};
use crate::markers::MarkerBook;
use crate::trie::Trie;
use crate::values::{MarkerView, PageView, PoolCount};

/// Pages sorted by namespace and path. Cost O(pages · path), for tests and bug reports.
pub fn pages(trie: &Trie) -> Vec<PageView> {
    let mut views = Vec::new();
    for id in trie.arena.ids() {
        let (start, end, page) = (trie.arena.node(id).start, trie.end(id), trie.config.page_tokens);
        let path = path(trie, id);
        views.extend((start + page..=end).step_by(page as usize).map(|at| page_view(trie, id, at, &path)));
    }
    views.sort_by(|one, other| (one.namespace, &one.path).cmp(&(other.namespace, &other.path)));
    views
}

fn path(trie: &Trie, id: NodeId) -> Vec<i32> {
    let (mut at, mut edges) = (id, Vec::new());
    while at != ORIGIN {
        edges.push(trie.arena.node(at).edge());
        at = trie.parent(at);
    }
    edges.into_iter().rev().flatten().copied().collect()
}

/// The page of a run that ends at `at`. What a checkpoint component has is at the run's end.
fn page_view(trie: &Trie, id: NodeId, at: u32, path: &[i32]) -> PageView {
    let start = trie.arena.node(id).start;
    let number = ((at - start) / trie.config.page_tokens - 1) as usize;
    let mut view = PageView {
        path: path[..at as usize].to_vec(),
        namespace: trie.namespaces.digest(trie.arena.node(id).namespace),
        slots: Vec::new(),
        locks: Vec::new(),
        references: Vec::new(),
    };
    for component in trie.components() {
        let state = trie.is_state(component);
        if state && at != trie.end(id) {
            continue;
        }
        let cell = trie.arena.cell(id, component);
        for tier in trie.config.tiers() {
            if trie.has(id, component, *tier) {
                let slots = trie.slots(id, component, *tier);
                view.slots.push((component, *tier, slots[if state { 0 } else { number }]));
            }
        }
        if cell.locks > 0 {
            view.locks.push((component, i64::from(cell.locks)));
        }
        if cell.live > 0 {
            view.references.push((component, i64::from(cell.live)));
        }
    }
    view
}

pub fn markers(trie: &Trie, book: &MarkerBook) -> Vec<MarkerView> {
    let mut views = Vec::new();
    for (name, number) in book.sessions() {
        views.extend(book.drafts(trie, Some(number)).into_iter().map(|draft| MarkerView {
            session: name.to_string(),
            generation: draft.generation,
            frontier: draft.frontier.length,
            alternate: draft.alternate.map_or(0, |spot| spot.length),
            start_seq: draft.start_seq,
            finish_seq: draft.finish_seq,
            left: draft.is_left(),
        }));
    }
    views
}

pub fn pools(trie: &mut Trie) -> Vec<PoolCount> {
    trie.settle();
    let mut counts = Vec::new();
    for component in trie.components() {
        for tier in trie.config.tiers() {
            let index = &trie.index[component][*tier as usize];
            counts.push(PoolCount {
                component,
                tier: *tier,
                cached: index.owned.len(),
                protected: index.protected,
                referenced: index.referenced,
            });
        }
    }
    counts
}
