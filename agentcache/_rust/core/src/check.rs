//! Every invariant of design §4.2, against a recomputation from the nodes alone.

use std::collections::BTreeMap;

use crate::arena::{FULL, NodeId, ORIGIN};
use crate::jobs::{JobTable, places};
use crate::leases::LeaseTable;
use crate::markers::MarkerBook;
use crate::trie::Trie;
use crate::values::{TREE_TIERS, Tier};

type Verdict = Result<(), String>;
type Counts = BTreeMap<(NodeId, usize), u32>;

fn must(holds: bool, what: impl Fn() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}

/// Cost O(nodes · components).
pub fn check(trie: &mut Trie, leases: &LeaseTable, jobs: &JobTable, markers: &mut MarkerBook) -> Verdict {
    let nodes: Vec<NodeId> = trie.arena.ids().collect();
    for id in &nodes {
        topology(trie, *id)?;
        residency(trie, *id)?;
    }
    owners(trie, &nodes)?;
    locks(trie, leases, &nodes)?;
    claims(trie, jobs, &nodes)?;
    references(trie, markers)?;
    indexes(trie)
}

fn topology(trie: &Trie, id: NodeId) -> Verdict {
    let node = trie.arena.node(id);
    let page = trie.config.page_tokens;
    let above = trie.arena.node(node.parent);
    must(above.alive && above.end == node.start && node.start < node.end, || {
        "a node hangs below its parent".into()
    })?;
    must(node.start % page == 0 && node.end % page == 0, || "a node is whole pages".into())?;
    let first = node.tokens.first(page);
    must(trie.arena.child(node.parent, node.namespace, first) == Some(id), || {
        format!("the node at {} is found below its parent", node.end)
    })?;
    let children: Vec<NodeId> = trie.arena.children(id).collect();
    must(children.len() as u32 == node.children, || "children are counted".into())?;
    for tier in TREE_TIERS {
        let carrying = children.iter().filter(|child| trie.has(**child, FULL, tier)).count() as u32;
        must(carrying == node.carrying[tier as usize], || "children with FULL are counted".into())?;
    }
    must(!node.going && node.leaving == 0, || "nothing is on its way between calls".into())?;
    let anchored =
        trie.anchors.at(&trie.arena, id).all(|anchor| anchor.node == id && anchor.length == node.end);
    must(anchored, || format!("markers end where their node does, at {}", node.end))
}

fn residency(trie: &Trie, id: NodeId) -> Verdict {
    let node = trie.arena.node(id);
    for component in trie.components() {
        for tier in TREE_TIERS {
            let here = trie.arena.cell(id, component).slots[tier as usize].here();
            must(here == trie.has(id, component, tier), || "residency is noted at the node".into())?;
        }
    }
    must(trie.anywhere(id, FULL), || format!("page {}: a node has FULL on device or host", node.end))?;
    if trie.has(id, FULL, Tier::Device) {
        must(node.parent == ORIGIN || trie.has(node.parent, FULL, Tier::Device), || {
            "FULL on device has its parent on device".into()
        })?;
    }
    for component in trie.components().filter(|component| *component != FULL) {
        let cell = trie.arena.cell(id, component);
        let grounded = !trie.has(id, component, Tier::Device)
            || cell.claims[Tier::Device as usize] > 0
            || trie.has(id, FULL, Tier::Device);
        must(grounded, || "aux data on the device have their FULL there".into())?;
        if let crate::config::Rule::Checkpoint { grid_tokens } = trie.config.rules[component] {
            must(!trie.anywhere(id, component) || node.end % grid_tokens == 0, || {
                "data lies where its component allows".into()
            })?;
        }
    }
    Ok(())
}

fn owners(trie: &Trie, nodes: &[NodeId]) -> Verdict {
    for component in trie.components() {
        for tier in TREE_TIERS {
            let mut found: Vec<i32> = Vec::new();
            for id in nodes.iter().filter(|id| trie.has(**id, component, tier)) {
                found.extend_from_slice(trie.slots(*id, component, tier));
            }
            let count = found.len();
            found.sort_unstable();
            found.dedup();
            must(count == found.len(), || "a slot has one owner".into())?;
            let owned = &trie.index[component][tier as usize].owned;
            let equal = owned.len() == count as i64 && found.iter().all(|slot| owned.contains(*slot));
            must(equal, || "owners equal residency".into())?;
        }
    }
    let pages: i64 = nodes.iter().map(|id| i64::from(trie.width(*id, FULL))).sum();
    must(pages == trie.pages, || "pages are counted".into())
}

fn locks(trie: &Trie, leases: &LeaseTable, nodes: &[NodeId]) -> Verdict {
    let mut wanted = Counts::new();
    for record in leases.records() {
        must(record.node == ORIGIN || trie.arena.node(record.node).alive, || "a lease's path exists".into())?;
        for component in trie.components() {
            let Some(start) = record.starts[component] else { continue };
            if record.node != ORIGIN && trie.is_state(component) {
                *wanted.entry((record.node, component)).or_default() += 1;
                continue;
            }
            let mut at = record.node;
            while at != ORIGIN && trie.end(at) > start {
                must(trie.arena.node(at).start >= start, || {
                    "a node lies wholly inside a lease, or outside".into()
                })?;
                must(component != FULL || trie.has(at, FULL, Tier::Device), || {
                    "leased FULL stays on the device".into()
                })?;
                *wanted.entry((at, component)).or_default() += 1;
                at = trie.parent(at);
            }
        }
    }
    for id in nodes {
        for component in trie.components() {
            let counted = wanted.get(&(*id, component)).copied().unwrap_or_default();
            must(trie.arena.cell(*id, component).locks == counted, || {
                format!("lock count of component {component} at {}", trie.end(*id))
            })?;
        }
    }
    Ok(())
}

fn claims(trie: &Trie, jobs: &JobTable, nodes: &[NodeId]) -> Verdict {
    let mut claimed = [Counts::new(), Counts::new()];
    let mut below: BTreeMap<NodeId, u32> = BTreeMap::new();
    for record in jobs.records() {
        must(trie.arena.node(record.tip).alive, || "a job's source exists".into())?;
        for (id, component) in places(trie, record) {
            must(trie.has(id, component, record.job.source), || "a job's source is resident".into())?;
            *claimed[record.job.source as usize].entry((id, component)).or_default() += 1;
        }
        let mut at = record.tip;
        while at != ORIGIN {
            *below.entry(at).or_default() += 1;
            at = trie.parent(at);
        }
    }
    for id in nodes {
        let counted = below.get(id).copied().unwrap_or_default();
        must(trie.arena.node(*id).jobs_below == counted, || format!("jobs below {}", trie.end(*id)))?;
        for component in trie.components() {
            for tier in TREE_TIERS {
                let counted = claimed[tier as usize].get(&(*id, component)).copied().unwrap_or_default();
                must(trie.arena.cell(*id, component).claims[tier as usize] == counted, || {
                    "claims equal the jobs'".into()
                })?;
            }
        }
    }
    Ok(())
}

fn references(trie: &mut Trie, markers: &mut MarkerBook) -> Verdict {
    let mut wanted: BTreeMap<(NodeId, usize), (u32, u32)> = BTreeMap::new();
    for (_, number) in markers.sessions() {
        for (component, id) in markers.recount(trie, number) {
            let (count, sum) = wanted.entry((id, component)).or_default();
            *count += 1;
            *sum = sum.wrapping_add(number);
        }
    }
    for id in trie.arena.ids() {
        for component in trie.components() {
            let cell = trie.arena.cell(id, component);
            let counted = wanted.get(&(id, component)).copied().unwrap_or_default();
            must((cell.live, cell.whose) == counted, || {
                format!("references of component {component} at {}", trie.end(id))
            })?;
            must(cell.live == 0 || !cell.released, || "what is wanted is not released".into())?;
        }
    }
    Ok(())
}

fn indexes(trie: &mut Trie) -> Verdict {
    trie.settle();
    for component in trie.components() {
        for tier in trie.config.tiers() {
            let mut seated: Vec<_> = trie.seated(component, *tier).collect();
            seated.sort_unstable_by_key(|(id, ..)| *id);
            let ranked = |id: NodeId| {
                let (class, rank) = trie.rank(id, component);
                (id, class, rank)
            };
            let wanted: Vec<_> =
                trie.arena.ids().filter(|id| trie.candidate(*id, component, *tier)).map(ranked).collect();
            must(seated == wanted, || format!("the order of component {component} on {tier:?}"))?;
            let count = |counts: &dyn Fn(NodeId) -> bool| -> i64 {
                let there = trie.arena.ids().filter(|id| trie.has(*id, component, *tier) && counts(*id));
                there.map(|id| i64::from(trie.width(id, component))).sum()
            };
            let index = &trie.index[component][*tier as usize];
            let protected = count(&|id| trie.arena.cell(id, component).protected(*tier));
            must(index.protected == protected, || "counted as protected".into())?;
            let referenced = count(&|id| trie.arena.cell(id, component).live > 0);
            must(index.referenced == referenced, || "counted as referenced".into())?;
        }
    }
    Ok(())
}
