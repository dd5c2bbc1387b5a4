//! Match: one walk, two votes (on the device; on device or host), and why the first is not deeper.

use crate::arena::{FULL, NodeId, ORIGIN};
use crate::config::Rule;
use crate::error::{Error, Kind, Result};
use crate::trie::Trie;
use crate::values::{Key, MatchResult, Miss, MissReason};

/// A position: the node whose pages hold it, and its length.
type Spot = (NodeId, u32);

/// What a walk has seen: per tier (device, any) the deepest accepted spot, and where each window's run began.
struct Walk {
    accepted: [Spot; 2],
    run_starts: [Vec<u32>; 2],
    /// The deepest candidate on the FULL path, and who refused it.
    last: u32,
    refusals: [u64; 2],
}

/// The outcome of a vote, in positions.
pub struct Found {
    pub device: Spot,
    pub any_tier: Spot,
    full_tokens: u32,
    miss: Option<Miss>,
}

impl Trie {
    /// The length of a key. Errors: `Unaligned`.
    pub fn whole_pages(&self, key: &Key<'_>) -> Result<u32> {
        let length = key.tokens.len() as u32;
        if length % self.config.page_tokens == 0 {
            return Ok(length);
        }
        Err(Error::new(Kind::Unaligned, "a key is whole pages; make keys with keys.page_key")
            .fact("tokens", length))
    }

    /// Errors: `Unaligned`.
    pub fn vote(&self, key: &Key<'_>, limit: i64) -> Result<Found> {
        let length = self.whole_pages(key)?;
        let cap = self.floor_page(limit.clamp(0, i64::from(length)) as u32);
        let mut walk = Walk {
            accepted: [(ORIGIN, 0); 2],
            run_starts: [vec![0; self.windows.len()], vec![0; self.windows.len()]],
            last: 0,
            refusals: [0; 2],
        };
        let (mut at, mut reached) = (ORIGIN, 0);
        while let Some((child, agree)) = self.descend(at, key, reached, cap) {
            at = child;
            reached += agree;
            self.consider(&mut walk, at, reached);
            if reached < self.end(at) {
                break;
            }
        }
        let miss = self.explain(&walk, reached, limit.min(i64::from(length)));
        Ok(Found { device: walk.accepted[0], any_tier: walk.accepted[1], full_tokens: reached, miss })
    }

    /// Poll the deepest candidate in the matched pages of a run: where it is refused, all above it in the run are.
    fn consider(&self, walk: &mut Walk, id: NodeId, reached: u32) {
        let (start, end) = (self.arena.node(id).start, self.end(id));
        let candidate = self.floor_grid(reached);
        let polled = candidate > start;
        let all = u64::MAX >> (64 - self.components().len());
        let [device, host] = self.arena.node(id).resident;
        let mut refusals = [all & !device, all & !(device | host)];
        for (refused, run_starts) in refusals.iter_mut().zip(&mut walk.run_starts) {
            for ((component, tokens), run_start) in self.windows.iter().zip(run_starts) {
                if *refused >> component & 1 == 1 {
                    *run_start = end;
                } else if candidate.saturating_sub(*tokens) < *run_start {
                    *refused |= 1 << component;
                }
            }
            if candidate != end {
                *refused |= self.states;
            }
        }
        if !polled {
            return;
        }
        walk.last = candidate;
        walk.refusals = refusals;
        for (accepted, refused) in walk.accepted.iter_mut().zip(refusals) {
            if refused == 0 {
                *accepted = (id, candidate);
            }
        }
    }

    /// Who refused the last candidate on the path: who lacks the data, or else whose data are on the host only.
    fn explain(&self, walk: &Walk, full_tokens: u32, limit: i64) -> Option<Miss> {
        let device = walk.accepted[0].1;
        if device == walk.last {
            let more = i64::from(device) + i64::from(self.config.grid_tokens) <= limit;
            let miss = Miss { component: FULL, position: full_tokens, reason: MissReason::NotCached };
            return more.then_some(miss);
        }
        let [on_device, on_any] = walk.refusals;
        let refused = if on_any == 0 { on_device } else { on_any };
        let component = refused.trailing_zeros() as usize;
        let reason = match self.config.rules[component] {
            _ if on_any == 0 => MissReason::OnHost,
            Rule::Path => MissReason::NotCached,
            Rule::Window { .. } => MissReason::WindowGap,
            Rule::Checkpoint { .. } => MissReason::NoCheckpoint,
        };
        Some(Miss { component, position: walk.last, reason })
    }

    pub fn result(&self, found: &Found) -> MatchResult {
        MatchResult {
            device: self.boundary(found.device.0, found.device.1),
            any_tier: self.boundary(found.any_tier.0, found.any_tier.1),
            full_tokens: found.full_tokens,
            miss: found.miss,
        }
    }
}
