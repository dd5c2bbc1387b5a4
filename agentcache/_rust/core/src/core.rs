//! `TreeCore`: the tree contract of `agentcache/tree/api.py`, call by call.

use crate::arena::{NodeId, ORIGIN};
use crate::backing::plan_fitting;
use crate::changes::Changes;
use crate::check;
use crate::closing::{demote_released, drop_released};
use crate::config::{Config, Rule};
use crate::coverage::{Spot, held};
use crate::error::{Error, Kind, Result};
use crate::eviction::{Asked, Eviction};
use crate::insert;
use crate::jobs::{JobTable, demand_region, device_end};
use crate::leases::LeaseTable;
use crate::markers::MarkerBook;
use crate::outline::outline;
use crate::rooms::HostRoom;
use crate::trie::Trie;
use crate::values::{
    Boundary, Committed, Evicted, Inserted, Key, Locked, MatchResult, NamespaceId, Offer, Outline, PageHash,
    Piece, Planned, ReleaseMode, Released, Snapshot, Stats, Tier, Turn, Wait,
};
use crate::views;

/// One tree with its leases, jobs and markers. Every call is total: an error changes nothing.
#[derive(Debug)]
pub struct TreeCore {
    trie: Trie,
    leases: LeaseTable,
    jobs: JobTable,
    markers: MarkerBook,
}

impl TreeCore {
    /// # Panics
    /// When the first rule is not `Path`, a grid is not whole pages, or there are more than 64 components: the builder
    /// validates configs.
    #[must_use]
    pub fn new(config: Config) -> Self {
        assert!(config.rules.first() == Some(&Rule::Path), "the first component is FULL");
        assert!(
            config.page_tokens > 0 && config.grid_tokens % config.page_tokens == 0,
            "a grid is whole pages"
        );
        assert!(
            config.rules.len() <= 64 && config.rules.len() == config.names.len(),
            "at most 64 components"
        );
        let first = (i64::from(config.instance) << 32) + 1;
        TreeCore {
            trie: Trie::new(config),
            leases: LeaseTable::new(first),
            jobs: JobTable::new(first),
            markers: MarkerBook::default(),
        }
    }

    #[must_use]
    pub fn config(&self) -> &Config {
        &self.trie.config
    }

    /// The number of a namespace, from `Namespace.digest()`.
    pub fn namespace(&mut self, digest: PageHash) -> NamespaceId {
        self.trie.namespaces.number(digest)
    }

    /// The same of one that was met; of another a number that no page has. For calls that leave no trace.
    #[must_use]
    pub fn known_namespace(&self, digest: &PageHash) -> NamespaceId {
        self.trie.namespaces.known(digest)
    }

    // -- Lookup

    pub fn match_prefix(&mut self, key: Key<'_>, limit: i64, now_ns: i64) -> Result<MatchResult> {
        self.trie.tick += 1;
        let found = self.trie.vote(&key, limit)?;
        let (holder, length) = found.any_tier;
        let node = self.trie.cut(holder, length);
        self.trie.touch(node, now_ns, true);
        self.trie.trim_marks();
        Ok(self.trie.result(&found))
    }

    pub fn peek(&self, key: Key<'_>, limit: i64) -> Result<MatchResult> {
        self.trie.vote(&key, limit).map(|found| self.trie.result(&found))
    }

    pub fn insert(&mut self, key: Key<'_>, offer: &Offer<'_>, now_ns: i64) -> Result<Inserted> {
        self.trie.tick += 1;
        insert::insert(&mut self.trie, &self.leases, key, offer, now_ns)
    }

    pub fn lock(&mut self, boundary: Boundary, _now_ns: i64) -> Result<Locked> {
        self.trie.tick += 1;
        let locked = self.leases.lock(&mut self.trie, &boundary);
        self.trie.trim_marks();
        locked
    }

    pub fn relock(&mut self, lease: i64, boundary: Boundary, _now_ns: i64) -> Result<Locked> {
        self.trie.tick += 1;
        let locked = self.leases.relock(&mut self.trie, lease, &boundary);
        self.trie.trim_marks();
        locked
    }

    pub fn unlock(&mut self, lease: i64, component: Option<usize>, _now_ns: i64) -> Result<()> {
        let unlocked = self.leases.unlock(&mut self.trie, lease, component);
        self.trie.trim_marks();
        unlocked
    }

    pub fn evict(
        &mut self,
        component: usize,
        tier: Tier,
        want: i64,
        room: &[i64],
        now_ns: i64,
        before: Option<Wait>,
    ) -> Result<Evicted> {
        self.trie.known(component)?;
        if !self.trie.config.tiers().contains(&tier) || want <= 0 {
            return Ok(Evicted { freed: 0, moving: 0, short: want.max(0), effects: Vec::new() });
        }
        self.trie.tick += 1;
        let mut changes = Changes::default();
        let asked = Asked { component, tier, want, now_ns, before };
        let (freed, moving) = Eviction::new(&mut self.trie, &mut self.jobs, &mut changes, asked, room).run();
        self.close_call(&mut changes);
        let effects = changes.effects(self.trie.config.emit_events, self.trie.config.tiers());
        Ok(Evicted { freed, moving, short: (want - freed - moving).max(0), effects })
    }

    // -- Tiering

    pub fn plan_backup(
        &mut self,
        boundary: Boundary,
        source: Tier,
        target: Tier,
        now_ns: i64,
        room: Option<&[i64]>,
    ) -> Result<Planned> {
        self.trie.tick += 1;
        let node = self.locate(&boundary)?;
        let down = [(Tier::Device, Tier::Host), (Tier::Device, Tier::External), (Tier::Host, Tier::External)];
        let there = |tier: Tier| tier == Tier::External || self.trie.config.tiers().contains(&tier);
        if !down.contains(&(source, target)) || !there(source) || !there(target) {
            return Err(Error::new(Kind::BadInsert, "a backup goes down to a tier that is there"));
        }
        let mut changes = Changes::default();
        let job = match room.filter(|_| target == Tier::Host) {
            None => self.jobs.plan_region(&mut self.trie, node, (source, target), &mut changes),
            Some(free) => {
                self.trie.advance(now_ns);
                let room = HostRoom::new(free, now_ns);
                plan_fitting(&mut self.trie, &mut self.jobs, node, room, &mut changes)
            }
        };
        self.close_call(&mut changes);
        let effects = changes.effects(self.trie.config.emit_events, self.trie.config.tiers());
        Ok(Planned { job, lease: None, effects })
    }

    pub fn plan_load(
        &mut self,
        boundary: Boundary,
        source: Tier,
        target: Tier,
        _now_ns: i64,
    ) -> Result<Planned> {
        self.trie.tick += 1;
        let node = self.locate(&boundary)?;
        if (source, target) != (Tier::Host, Tier::Device) || !self.trie.config.host_tier {
            return Err(Error::new(
                Kind::BadInsert,
                "the tree plans loads from host to device; graft what comes from outside with insert(tier=host)",
            ));
        }
        demand_region(&mut self.trie, node)?;
        let mut changes = Changes::default();
        let job = self.jobs.plan_region(&mut self.trie, node, (source, target), &mut changes);
        let device_end = device_end(&self.trie, node);
        let lease = self.leases.lock_device_part(&mut self.trie, node, device_end);
        self.trie.trim_marks();
        Ok(Planned { job, lease: Some(lease), effects: changes.effects(false, &[]) })
    }

    pub fn commit(&mut self, job: i64, landed: &[Piece], _now_ns: i64) -> Result<Committed> {
        self.trie.tick += 1;
        let mut changes = Changes::default();
        let (landed, dropped) = self.jobs.commit(&mut self.trie, job, landed, &mut changes)?;
        self.close_call(&mut changes);
        let effects = changes.effects(self.trie.config.emit_events, self.trie.config.tiers());
        Ok(Committed { landed, dropped, effects })
    }

    // -- Sessions

    pub fn reference(
        &mut self,
        session: &str,
        generation: i64,
        turn: &Turn,
        _now_ns: i64,
    ) -> Result<Released> {
        let frontier = self.spot(turn.frontier.as_ref())?;
        let alternate = self.spot(turn.alternate.as_ref())?;
        let gone = self.markers.register(&mut self.trie, session, generation, turn, (frontier, alternate));
        self.trie.trim_marks();
        let held = held(&self.trie, &gone, 0);
        Ok(Released { mode: ReleaseMode::Release, held, markers: 0, effects: Vec::new() })
    }

    pub fn release(
        &mut self,
        session: &str,
        through_generation: i64,
        mode: ReleaseMode,
        _now_ns: i64,
    ) -> Released {
        let drafts = self.markers.drafts(&self.trie, self.markers.session(session));
        let ending = drafts.iter().filter(|draft| draft.generation <= through_generation).count() as i64;
        if mode == ReleaseMode::Preview {
            let gone = self.markers.would_drop(&self.trie, session, through_generation);
            let held = held(&self.trie, &gone, 1);
            return Released { mode, held, markers: ending, effects: Vec::new() };
        }
        self.trie.tick += 1;
        let plain = mode == ReleaseMode::Demote && !self.trie.config.host_tier;
        let mode = if plain { ReleaseMode::Release } else { mode };
        let gone = self.markers.drop_through(&mut self.trie, session, through_generation);
        let held = held(&self.trie, &gone, 0);
        let mut changes = Changes::default();
        match mode {
            ReleaseMode::Drop => drop_released(&mut self.trie, &gone, &mut changes),
            ReleaseMode::Demote => demote_released(&mut self.trie, &mut self.jobs, &gone, &mut changes),
            ReleaseMode::Release | ReleaseMode::Preview => {}
        }
        self.close_call(&mut changes);
        let effects = changes.effects(self.trie.config.emit_events, self.trie.config.tiers());
        Released { mode, held, markers: ending, effects }
    }

    pub fn expect(&mut self, session: &str, wait: Wait, _now_ns: i64) {
        self.markers.expect(&mut self.trie, session, wait);
        self.trie.trim_marks();
    }

    // -- Inspect

    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            pages: views::pages(&self.trie),
            markers: views::markers(&self.trie, &self.markers),
            leases: self.leases.len() as i64,
            jobs: self.jobs.len() as i64,
            epoch: self.trie.epoch,
        }
    }

    #[must_use]
    pub fn outline(&self, limit: usize) -> Outline {
        outline(&self.trie, &self.markers, limit)
    }

    /// Verify every invariant of design §4.2 against a recomputation; the error names the first broken one.
    pub fn check(&mut self) -> std::result::Result<(), String> {
        check::check(&mut self.trie, &self.leases, &self.jobs, &mut self.markers)
    }

    pub fn stats(&mut self) -> Stats {
        Stats {
            pools: views::pools(&mut self.trie),
            pages: self.trie.pages,
            leases: self.leases.len() as i64,
            jobs: self.jobs.len() as i64,
            sessions: self.markers.session_count() as i64,
            markers: self.markers.size,
        }
    }

    pub fn clear(&mut self, namespace: Option<NamespaceId>, _now_ns: i64) -> Result<Released> {
        if self.leases.len() + self.jobs.len() > 0 {
            return Err(Error::new(Kind::InUse, "requests or transfers are running; clear when idle")
                .fact("leases", self.leases.len() as i64)
                .fact("jobs", self.jobs.len() as i64));
        }
        let markers = self.markers.size;
        let doomed = |id: &NodeId| namespace.is_none_or(|only| self.trie.arena.node(*id).namespace == only);
        let tops: Vec<NodeId> = self.trie.arena.children(ORIGIN).filter(doomed).collect();
        let (mut positions, mut stack) = (Vec::new(), tops.clone());
        while let Some(id) = stack.pop() {
            positions.extend(self.trie.components().map(|component| (component, id)));
            stack.extend(self.trie.arena.children(id));
        }
        let held = held(&self.trie, &positions, self.markers.session_count() as u32);
        let mut changes = Changes::default();
        for id in tops {
            self.trie.remove(id, &mut changes);
        }
        if namespace.is_none() {
            changes.cleared();
        }
        self.close_call(&mut changes);
        let effects = changes.effects(self.trie.config.emit_events, self.trie.config.tiers());
        let markers = markers - self.markers.size;
        Ok(Released { mode: ReleaseMode::Drop, held, markers, effects })
    }

    // -- inside

    fn locate(&mut self, boundary: &Boundary) -> Result<NodeId> {
        let (holder, length) = self.trie.find(boundary)?;
        Ok(self.trie.cut(holder, length))
    }

    /// The deepest boundary that votes at or above this one; None for the root, which nobody can reference.
    fn spot(&mut self, boundary: Option<&Boundary>) -> Result<Option<Spot>> {
        let Some(boundary) = boundary else { return Ok(None) };
        let (holder, length) = self.trie.find(boundary)?;
        let (node, length) = self.trie.deepest_votable(holder, length);
        Ok((node != ORIGIN).then(|| Spot { node: self.trie.cut(node, length), length }))
    }

    /// End a call that may have dropped data: stale boundaries, markers that no longer vote.
    fn close_call(&mut self, changes: &mut Changes) {
        self.trie.epoch += i64::from(changes.dropped);
        let disturbed = std::mem::take(&mut changes.disturbed);
        self.markers.repair(&mut self.trie, disturbed);
        self.trie.trim_marks();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::FULL;
    use crate::config::{Order, OrderBase};
    use crate::coverage::Coverage;

    fn core() -> TreeCore {
        TreeCore::new(Config {
            page_tokens: 1,
            grid_tokens: 1,
            rules: vec![Rule::Path],
            names: vec!["FULL".into()],
            order: Order::Session,
            base: OrderBase::Lru,
            write_back: false,
            host_tier: false,
            emit_events: false,
            max_markers: 8,
            unclaimed_ns: 0,
            instance: 1,
        })
    }

    fn plain(full: &[i32]) -> Offer<'_> {
        Offer { full, pieces: &[], after: None, tier: Tier::Device, priority: 0, full_from: None }
    }

    #[test]
    fn a_demoted_path_stays_one_run() {
        let mut core = core();
        (core.trie.config.write_back, core.trie.config.host_tier) = (true, true);
        let tokens: Vec<i32> = (0..40).collect();
        let namespace = core.namespace([7; 32]);
        let offer = plain(&tokens);
        core.insert(Key { tokens: &tokens, namespace }, &offer, 1).expect("it fits");
        let evicted = core.evict(FULL, Tier::Device, 30, &[40], 2, None).expect("there is room");
        assert_eq!((evicted.moving, core.trie.arena.ids().count()), (30, 2));
        core.check().expect("the tree is whole");
    }

    #[test]
    fn references_are_counted_right_when_the_rounds_of_stamps_start_over() {
        let mut core = core();
        core.markers.coverage = Coverage::late();
        let tokens: Vec<i32> = (0..40).collect();
        let offer = plain(&tokens);
        let namespace = core.namespace([7; 32]);
        let tip = core.insert(Key { tokens: &tokens, namespace }, &offer, 1).expect("it fits").frontier;
        for turn in 0..20 {
            let length = if turn % 2 == 0 { 40 } else { 10 };
            let frontier = Some(Boundary { length, ..tip });
            let turn =
                Turn { frontier, alternate: None, start_seq: turn, finish_seq: turn, superseded: true };
            core.reference("s", i64::from(turn.start_seq > 9) + 1, &turn, 2)
                .expect("the boundary is current");
            core.check().expect("references equal a recomputation");
        }
        core.release("s", 9, ReleaseMode::Release, 3);
        assert_eq!(core.stats().pools[0].referenced, 0);
    }
}
