//! Room on the host for what goes down: the free slots of one call, and who makes way (design §7).

use crate::arena::{FULL, NodeId};
use crate::changes::Changes;
use crate::config::Rule;
use crate::jobs::Place;
use crate::trie::Trie;
use crate::values::Tier;

const HOST: Tier = Tier::Host;

/// A piece that asks for one slot: the node whose pages hold it, where its page or state ends, and its component.
#[derive(Clone, Copy, Debug)]
pub struct Guest {
    pub id: NodeId,
    pub end: u32,
    pub component: usize,
}

/// Free host slots, less those promised in this call; where none is left, a lower ranked piece makes way.
#[derive(Debug)]
pub struct HostRoom {
    free: Vec<i64>,
    now_ns: i64,
}

impl HostRoom {
    pub fn new(free: &[i64], now_ns: i64) -> Self {
        HostRoom { free: free.iter().map(|free| (*free).max(0)).collect(), now_ns }
    }

    pub fn free(&self, component: usize) -> i64 {
        self.free[component]
    }

    /// As many slots as there are without anybody making way, at most `want`.
    pub fn take_free(&mut self, component: usize, want: i64) -> i64 {
        let taken = want.min(self.free[component]);
        self.free[component] -= taken;
        taken
    }

    /// One slot for this piece; false when it cannot be had. What is `leaving` the device must keep its path.
    pub fn take(&mut self, trie: &mut Trie, guest: Guest, leaving: &[Place], changes: &mut Changes) -> bool {
        if self.free[guest.component] <= 0 {
            self.make_way(trie, guest, (1, false), leaving, changes);
        }
        self.take_free(guest.component, 1) > 0
    }

    /// Slots for the last `want` FULL pages of a run, the last of which is the guest, or for the deepest of them; each
    /// carries the one below it. Answers how many.
    pub fn take_run(
        &mut self,
        trie: &mut Trie,
        guest: Guest,
        want: i64,
        leaving: &[Place],
        changes: &mut Changes,
    ) -> i64 {
        let mut taken = 0;
        loop {
            taken += self.take_free(guest.component, want - taken);
            if taken == want {
                return taken;
            }
            self.make_way(trie, guest, (want - taken, taken > 0), leaving, changes);
            if self.free[guest.component] <= 0 {
                return taken;
            }
        }
    }

    /// Evict lower ranked pages or a state from the host; any, when host data below would lose its path.
    ///
    /// One, or up to `want` of the run that would be the lowest each time. `carrying`: the guest's page below has room.
    fn make_way(
        &mut self,
        trie: &mut Trie,
        guest: Guest,
        (want, carrying): (i64, bool),
        leaving: &[Place],
        changes: &mut Changes,
    ) {
        let Guest { id, end, component } = guest;
        let Some(lowest) = trie.best(component, HOST, self.now_ns) else { return };
        let on_the_way = |at: &Place| at.0 == lowest;
        let above = trie.is_prefix(lowest, id);
        let moving = carrying || !leaving.is_empty();
        if component == FULL && ((moving && above) || leaving.iter().any(on_the_way)) {
            return; // what is about to move would lose its path
        }
        if !carrying && !carries(trie, guest) && !trie.goes_before(lowest, (id, end), component) {
            return;
        }
        let mut pages = 1;
        if !trie.is_state(component) {
            if want > 1 && !above && trie.arena.node(lowest).resident[HOST as usize] == 1 << FULL {
                pages = want.min(trie.leads_by(lowest, component, HOST));
            }
            trie.cut(lowest, trie.end(lowest) - pages as u32 * trie.config.page_tokens);
        }
        let mut others = cascaded(trie, lowest, component, HOST, false);
        others.push(component);
        for other in others {
            self.free[other] = self.free[other].saturating_add(pages);
            trie.lose(lowest, other, HOST, changes);
        }
    }
}

/// Whether a page right below is on the host or goes there in this call: its path would end without this FULL page.
fn carries(trie: &Trie, guest: Guest) -> bool {
    let node = trie.arena.node(guest.id);
    let below = node.carrying[HOST as usize] > 0 || node.leaving > 0;
    guest.component == FULL && guest.end == node.end && below
}

/// The aux components that lose their copy on `tier` here with `component`.
pub fn cascaded(trie: &Trie, id: NodeId, component: usize, tier: Tier, demoted: bool) -> Vec<usize> {
    let rules = &trie.config.rules;
    let along = |other: &usize| match (rules[component], rules[*other]) {
        (Rule::Path, _) => true,
        (Rule::Window { tokens }, Rule::Window { tokens: smaller }) => smaller <= tokens,
        (Rule::Window { .. }, Rule::Checkpoint { .. }) => !demoted,
        _ => false,
    };
    trie.components()
        .filter(|other| *other != FULL && *other != component)
        .filter(along)
        .filter(|other| trie.has(id, *other, tier) && !trie.arena.cell(id, *other).protected(tier))
        .collect()
}
