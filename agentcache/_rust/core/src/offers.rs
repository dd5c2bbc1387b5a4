//! A validated insert: what is offered where, and how deep the path votes with it. An error changes nothing.

use crate::arena::{FULL, NodeId, ORIGIN};
use crate::config::Rule;
use crate::error::{Error, Kind, Result};
use crate::leases::LeaseTable;
use crate::runs::SlotSet;
use crate::trie::Trie;
use crate::values::{Key, Offer, Piece, Tier};

/// A window interval or a state (`start` = `end` - one page then), with its slots.
#[derive(Clone, Copy, Debug)]
pub struct Offered<'a> {
    pub start: u32,
    pub end: u32,
    pub slots: &'a [i32],
}

/// An insert that may happen: the base it continues, and per component what is offered, shallowest first.
pub struct Checked<'a> {
    pub key: Key<'a>,
    pub base: NodeId,
    pub from: u32,
    pub full_from: u32,
    pub to: u32,
    pub tier: Tier,
    pub pieces: Vec<Vec<Offered<'a>>>,
}

/// A node on the path of a key below the base, and to where they agree.
pub type Step = (NodeId, u32);

fn bad(message: &'static str) -> Error {
    Error::new(Kind::BadInsert, message)
}

/// Errors: `LeaseReused`, `Unaligned`, `BadInsert`, `UnknownComponent`, in the order of the reference core.
pub fn checked<'a>(trie: &Trie, leases: &LeaseTable, key: Key<'a>, offer: &Offer<'a>) -> Result<Checked<'a>> {
    let to = trie.whole_pages(&key)?;
    let base = offer.after.map_or(Ok(ORIGIN), |lease| leases.record(lease).map(|record| record.node))?;
    if !trie.config.tiers().contains(&offer.tier) {
        return Err(bad("this tree does not keep residency of that tier"));
    }
    let from = trie.end(base);
    if to < from || (base != ORIGIN && trie.arena.node(base).namespace != key.namespace) {
        return Err(bad("the key does not continue the lease's path").fact("after", from));
    }
    let full_from = full_from(trie, offer, (from, to))?;
    let pieces = vec![Vec::new(); trie.components().len()];
    let mut made = Checked { key, base, from, full_from, to, tier: offer.tier, pieces };
    if offer.full.len() != ((to - full_from) / trie.config.page_tokens) as usize {
        return Err(bad("one slot a page, or one state with start == end").of(FULL));
    }
    if !offer.full.is_empty() {
        made.pieces[FULL].push(Offered { start: full_from, end: to, slots: offer.full });
    }
    for piece in offer.pieces {
        made.add(trie, piece)?;
    }
    for component in trie.components() {
        made.refuse_owned(trie, component)?;
    }
    Ok(made)
}

/// Where the offered FULL begins.
fn full_from(trie: &Trie, offer: &Offer<'_>, (from, to): (u32, u32)) -> Result<u32> {
    let asked = offer.full_from.unwrap_or(from.into());
    let start = u32::try_from(asked).ok().filter(|start| (from..=to).contains(start));
    let start = start.ok_or_else(|| {
        bad("FULL begins after the lease and within the key").fact("full_from", asked).fact("after", from)
    })?;
    if start % trie.config.page_tokens != 0 {
        return Err(Error::new(Kind::Unaligned, "FULL begins at a whole page").fact("full_from", start));
    }
    Ok(start)
}

impl<'a> Checked<'a> {
    fn add(&mut self, trie: &Trie, piece: &'a Piece) -> Result<()> {
        let page = i64::from(trie.config.page_tokens);
        if piece.component == FULL {
            return Err(bad("FULL slots go into `full`, not into `pieces`"));
        }
        let component = trie.known(piece.component)?;
        if piece.start < 0 || piece.start > piece.end || piece.end > i64::from(self.to) {
            return Err(bad("pieces lie within the key").of(component).fact("start", piece.start));
        }
        if piece.start % page != 0 || piece.end % page != 0 {
            return Err(Error::new(Kind::Unaligned, "pieces are whole pages").of(component));
        }
        let state = trie.is_state(component);
        let count = if state { 1 } else { (piece.end - piece.start) / page };
        if piece.slots.len() as i64 != count || (state && piece.start != piece.end) {
            return Err(bad("one slot a page, or one state with start == end").of(component));
        }
        if count == 0 {
            return Ok(());
        }
        if let Rule::Checkpoint { grid_tokens } = trie.config.rules[component]
            && (piece.end <= 0 || piece.end % i64::from(grid_tokens) != 0)
        {
            return Err(Error::new(Kind::Unaligned, "no state can lie here").of(component));
        }
        let start = if state { piece.end - page } else { piece.start };
        let inside = start >= i64::from(self.from) && piece.end <= i64::from(self.to);
        let (start, end) = (start as u32, piece.end as u32);
        let pieces = &mut self.pieces[component];
        let at = pieces.partition_point(|other| other.end <= start);
        if !inside || pieces.get(at).is_some_and(|other| other.start < end) {
            return Err(
                bad("each position is offered once, after the lease and within the key").of(component)
            );
        }
        pieces.insert(at, Offered { start, end, slots: &piece.slots });
        Ok(())
    }

    /// A slot has one owner: refuse slots that the tree has already, that are offered twice, or that cannot be.
    fn refuse_owned(&self, trie: &Trie, component: usize) -> Result<()> {
        let owned = &trie.index[component][self.tier as usize].owned;
        let mut seen = SlotSet::default();
        let mut before = -1;
        let mut rising = true;
        for slot in self.pieces[component].iter().flat_map(|offered| offered.slots) {
            rising = rising && *slot > before;
            before = *slot;
            if *slot < 0 {
                return Err(bad("slots count from 0").of(component).fact("slot", *slot));
            }
            if owned.contains(*slot) {
                return Err(bad("this slot has an owner already").of(component).fact("slot", *slot));
            }
        }
        if rising {
            return Ok(());
        }
        for slot in self.pieces[component].iter().flat_map(|offered| offered.slots) {
            if seen.contains(*slot) {
                return Err(bad("each slot is given once").of(component).fact("twice", *slot));
            }
            seen.insert_all(std::slice::from_ref(slot));
        }
        Ok(())
    }

    /// The nodes below the base that hold the longest stored prefix of the key.
    pub fn walk(&self, trie: &Trie) -> Vec<Step> {
        let (mut at, mut reached, mut steps) = (self.base, self.from, Vec::new());
        while let Some((child, agree)) = trie.descend(at, &self.key, reached, self.to) {
            reached += agree;
            at = child;
            steps.push((child, reached));
            if reached < trie.end(child) {
                break;
            }
        }
        steps
    }

    /// Whether the pages before `full_from` have the FULL that the offer leaves out: on the device for an offer there.
    /// A page that is in the tree has FULL on some tier.
    pub fn has_ground(&self, trie: &Trie, steps: &[Step]) -> bool {
        let reached = steps.last().map_or(self.from, |step| step.1);
        let mut ground = steps.iter().filter(|step| trie.arena.node(step.0).start < self.full_from);
        reached >= self.full_from
            && (self.tier != Tier::Device || ground.all(|step| trie.has(step.0, FULL, Tier::Device)))
    }

    /// The deepest end that votes as it is: its node, and its length.
    pub fn standing(&self, trie: &Trie, steps: &[Step]) -> Step {
        let (tip, reached) = steps.last().copied().unwrap_or((self.base, self.from));
        trie.deepest_votable(tip, reached)
    }

    /// The deepest end that votes on device or host once the offer is in.
    pub fn frontier(&self, trie: &Trie, steps: &[Step]) -> u32 {
        let resident: Vec<Vec<(u32, u32)>> =
            trie.components().map(|component| self.resident(trie, steps, component)).collect();
        let mut end = trie.floor_grid(self.to);
        'candidates: while end > self.from {
            for component in trie.components().filter(|component| *component != FULL) {
                let runs = &resident[component];
                let Some((start, last)) = runs[..runs.partition_point(|run| run.0 < end)].last().copied()
                else {
                    break 'candidates;
                };
                let short = match trie.config.rules[component] {
                    Rule::Window { tokens } => end.saturating_sub(tokens) < start,
                    _ => false,
                };
                if end > last || short {
                    end = trie.floor_grid(if end > last { last } else { start });
                    continue 'candidates;
                }
            }
            return end;
        }
        trie.deepest_votable(self.base, self.from).1
    }

    /// Where a component will lie below the base, in runs without a gap; a window's first run may begin above it.
    fn resident(&self, trie: &Trie, steps: &[Step], component: usize) -> Vec<(u32, u32)> {
        let page = trie.config.page_tokens;
        let state = trie.is_state(component);
        let mut runs: Vec<(u32, u32)> = self.pieces[component].iter().map(|at| (at.start, at.end)).collect();
        if component == FULL {
            return runs;
        }
        for (id, reached) in steps {
            if trie.anywhere(*id, component) && (!state || *reached == trie.end(*id)) {
                let start = if state { reached - page } else { trie.arena.node(*id).start };
                runs.push((start, *reached));
            }
        }
        if let Rule::Window { tokens } = trie.config.rules[component] {
            let start = trie.run_start(self.base, component, (self.from + page).saturating_sub(tokens));
            if start < self.from {
                runs.push((start, self.from));
            }
        }
        runs.sort_unstable();
        if !state {
            runs.dedup_by(|next, run| {
                let joined = next.0 <= run.1;
                run.1 = if joined { run.1.max(next.1) } else { run.1 };
                joined
            });
        }
        runs
    }
}
