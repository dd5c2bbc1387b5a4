//! The tree as a drawing has it: branches without forks, the last used first.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::arena::{FULL, NodeId, ORIGIN};
use crate::markers::MarkerBook;
use crate::trie::Trie;
use crate::values::{Branch, Outline, PageHash};

/// Last use, start, namespace, first page: the order in which branches come. Then the parent's place, and the first run.
type Turn = Reverse<(Reverse<i64>, u32, PageHash, Vec<i32>, i64, NodeId)>;

/// At most so many branches. A page was used whenever one below it was, so parents come first.
pub fn outline(trie: &Trie, book: &MarkerBook, limit: usize) -> Outline {
    let mut endings: HashMap<NodeId, u32> = HashMap::new();
    for (_, number) in book.sessions() {
        for draft in book.drafts(trie, Some(number)) {
            *endings.entry(draft.frontier.node).or_default() += 1;
        }
    }
    let (mut waiting, mut branches) = (BinaryHeap::new(), Vec::new());
    push(trie, &mut waiting, ORIGIN, -1);
    while branches.len() < limit {
        let Some(Reverse((.., parent, id))) = waiting.pop() else { break };
        let runs = unforked(trie, id);
        push(trie, &mut waiting, runs[runs.len() - 1], branches.len() as i64);
        let markers = runs.iter().filter_map(|id| endings.get(id)).sum();
        branches.push(branch(trie, &runs, parent, markers));
    }
    Outline { branches, more: !waiting.is_empty() }
}

fn push(trie: &Trie, waiting: &mut BinaryHeap<Turn>, above: NodeId, number: i64) {
    for id in trie.arena.children(above) {
        let node = trie.arena.node(id);
        let first = node.edge()[..trie.config.page_tokens as usize].to_vec();
        let (used, namespace) = (trie.arena.cell(id, FULL).used_ns, trie.namespaces.digest(node.namespace));
        waiting.push(Reverse((Reverse(used), node.start, namespace, first, number, id)));
    }
}

/// The runs from this one down to the next fork or end.
fn unforked(trie: &Trie, id: NodeId) -> Vec<NodeId> {
    let mut runs = vec![id];
    let mut at = id;
    while trie.arena.node(at).children == 1 {
        at = trie.arena.node(at).first;
        runs.push(at);
    }
    runs
}

fn branch(trie: &Trie, runs: &[NodeId], parent: i64, markers: u32) -> Branch {
    let (first, last) = (runs[0], runs[runs.len() - 1]);
    let pages = |id: NodeId| (trie.end(id) - trie.arena.node(id).start) / trie.config.page_tokens;
    let mut resident = Vec::new();
    for component in trie.components() {
        for tier in trie.config.tiers() {
            let held = runs.iter().filter(|id| trie.has(**id, component, *tier));
            let count = held.map(|id| if trie.is_state(component) { 1 } else { pages(*id) }).sum();
            if count > 0 {
                resident.push((component, *tier, count));
            }
        }
    }
    Branch {
        parent,
        start: trie.arena.node(first).start,
        end: trie.end(last),
        namespace: trie.namespaces.digest(trie.arena.node(first).namespace),
        resident,
        referenced: runs.iter().filter(|id| trie.arena.cell(**id, FULL).live > 0).map(|id| pages(*id)).sum(),
        running: runs.iter().filter(|id| trie.arena.cell(**id, FULL).locks > 0).map(|id| pages(*id)).sum(),
        reusable: trie.deepest_votable(last, trie.end(last)).1,
        markers,
        used_ns: trie.arena.cell(first, FULL).used_ns,
    }
}
