//! What one call did, collected as the effects that the cache will apply.

use hashbrown::HashMap;

use crate::arena::NodeKey;
use crate::values::{Effect, Event, EventKind, Job, PageHash, Tier};

#[derive(Debug)]
enum Step {
    /// By pool, in the order in which pools first came.
    Frees(Vec<(usize, Tier, Vec<i32>)>),
    Move(Job),
}

/// Effects of one call: frees before the moves that may use them, placement events last.
#[derive(Debug, Default)]
pub struct Changes {
    steps: Vec<Step>,
    stored: Vec<(Event, NodeKey)>,
    removed: [Vec<PageHash>; 2],
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

    /// A node got FULL on `tier`; consecutive nodes of one path make one event.
    pub fn stored(&mut self, event: Event, node: NodeKey, parent: NodeKey) {
        match self.stored.last_mut() {
            Some((last, tip)) if last.tier == event.tier && *tip == parent => {
                last.hashes.extend(event.hashes);
                last.tokens.extend(event.tokens);
                *tip = node;
            }
            _ => self.stored.push((event, node)),
        }
    }

    pub fn removed(&mut self, tier: Tier, hashes: &[PageHash]) {
        self.removed[tier as usize].extend(hashes.iter().rev());
    }

    /// Everything went: one event a tier replaces the removals.
    pub fn cleared(&mut self) {
        self.cleared = true;
    }

    pub fn effects(self, emit: bool, tiers: &[Tier]) -> Vec<Effect> {
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
        let bare = |kind, tier, hashes| Event { kind, tier, hashes, parent: None, tokens: Vec::new() };
        if self.cleared {
            effects
                .extend(tiers.iter().map(|tier| Effect::Emit(bare(EventKind::Cleared, *tier, Vec::new()))));
            return effects;
        }
        effects.extend(self.stored.into_iter().map(|(event, _)| Effect::Emit(event)));
        for (hashes, tier) in self.removed.into_iter().zip([Tier::Device, Tier::Host]) {
            if !hashes.is_empty() {
                effects.push(Effect::Emit(bare(EventKind::Removed, tier, hashes)));
            }
        }
        effects
    }
}
