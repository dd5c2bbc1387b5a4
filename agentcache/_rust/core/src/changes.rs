//! What one call did, collected as the effects that the cache will apply.

use std::cmp::Reverse;

use hashbrown::HashMap;

use crate::arena::{FULL, NodeKey};
use crate::values::{Effect, Event, EventKind, Job, PageHash, Tier};

#[derive(Debug)]
enum Step {
    /// By pool, in the order in which pools first came.
    Frees(Vec<(usize, Tier, Vec<i32>)>),
    Move(Job),
}

/// Hashes of one component's pages or states on one tier.
type Told = (usize, Tier, Vec<PageHash>);

/// Effects of one call: frees before the moves that may use them, placement events last.
#[derive(Debug, Default)]
pub struct Changes {
    steps: Vec<Step>,
    /// FULL that was stored, by path, and the deepest node of each.
    runs: Vec<(Event, NodeKey)>,
    stored: Vec<Told>,
    removed: Vec<Told>,
    cleared: bool,
    /// Something was let go of: boundaries issued before are stale.
    pub dropped: bool,
    /// Sessions that wanted what was lost.
    pub disturbed: Vec<u32>,
    /// Nodes that went in this call, and what was above each.
    pub above: HashMap<NodeKey, NodeKey, foldhash::fast::FixedState>,
}

impl Changes {
    pub fn free(&mut self, component: usize, tier: Tier, slots: &[i32]) {
        if !matches!(self.steps.last(), Some(Step::Frees(_))) {
            self.steps.push(Step::Frees(Vec::new()));
        }
        let Some(Step::Frees(pools)) = self.steps.last_mut() else { return };
        match pools.iter_mut().find(|(name, place, _)| (*name, *place) == (component, tier)) {
            Some((_, _, freed)) => freed.extend_from_slice(slots),
            None => pools.push((component, tier, slots.to_vec())),
        }
    }

    pub fn send(&mut self, job: Job) {
        self.steps.push(Step::Move(job));
    }

    /// A node got FULL on a tier; consecutive nodes of one path make one event.
    pub fn stored_path(&mut self, event: Event, node: NodeKey, parent: NodeKey) {
        match self.runs.last_mut() {
            Some((last, tip)) if last.tier == event.tier && *tip == parent => {
                last.hashes.extend(event.hashes);
                last.tokens.extend(event.tokens);
                *tip = node;
            }
            _ => self.runs.push((event, node)),
        }
    }

    /// A component other than FULL has these pages or this state on a tier now.
    pub fn stored(&mut self, component: usize, tier: Tier, hashes: &[PageHash]) {
        gather(&mut self.stored, component, tier, hashes);
    }

    pub fn removed(&mut self, component: usize, tier: Tier, hashes: &[PageHash]) {
        gather(&mut self.removed, component, tier, hashes);
    }

    /// Everything went: one event a tier replaces the removals.
    pub fn cleared(&mut self) {
        self.cleared = true;
    }

    pub fn effects(mut self, emit: bool, tiers: &[Tier]) -> Vec<Effect> {
        let mut effects = Vec::with_capacity(self.steps.len());
        for step in self.steps {
            match step {
                Step::Move(job) => effects.push(Effect::Move(job)),
                Step::Frees(pools) => {
                    effects.extend(pools.into_iter().map(|(component, tier, slots)| Effect::Free {
                        component,
                        tier,
                        slots,
                    }));
                }
            }
        }
        if !emit {
            return effects;
        }
        if self.cleared {
            let all = |tier: &Tier| bare(EventKind::Cleared, (FULL, *tier, Vec::new()));
            effects.extend(tiers.iter().map(all));
            return effects;
        }
        // Stored: FULL first. Removed: FULL last, so that aux data never lie where no FULL is.
        effects.extend(self.runs.into_iter().map(|(event, _)| Effect::Emit(event)));
        self.stored.sort_unstable_by_key(|(component, tier, _)| (*component, *tier));
        effects.extend(self.stored.into_iter().map(|told| bare(EventKind::Stored, told)));
        self.removed.sort_unstable_by_key(|(component, tier, _)| (Reverse(*component), *tier));
        effects.extend(self.removed.into_iter().map(|told| bare(EventKind::Removed, told)));
        effects
    }
}

/// One event a component and tier.
fn gather(events: &mut Vec<Told>, component: usize, tier: Tier, hashes: &[PageHash]) {
    match events.iter_mut().find(|(name, place, _)| (*name, *place) == (component, tier)) {
        Some((_, _, told)) => told.extend_from_slice(hashes),
        None => events.push((component, tier, hashes.to_vec())),
    }
}

fn bare(kind: EventKind, (component, tier, hashes): Told) -> Effect {
    Effect::Emit(Event { kind, component, tier, hashes, parent: None, tokens: Vec::new() })
}
