//! Markers: what each open session wants back (design §4.5).

use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::anchors::AnchorId;
use crate::arena::{Cell, FULL, NONE, ORIGIN, Queued};
use crate::coverage::{Coverage, Draft, NOT_LEFT, Positions, Spot};
use crate::ranking::place_in_queue;
use crate::trie::Trie;
use crate::values::{Turn, Wait};

/// A marker in place: its boundaries are listed at their nodes.
#[derive(Debug)]
struct Marker {
    draft: Draft,
    frontier: AnchorId,
    alternate: AnchorId,
}

/// A session's markers as they are, and as they will be.
struct Move {
    number: u32,
    before: Vec<Draft>,
    after: Vec<Draft>,
}

/// Markers per session; the counts of what they reference are in the trie's cells.
#[derive(Debug, Default)]
pub struct MarkerBook {
    names: HashMap<Arc<str>, u32, RandomState>,
    sessions: Vec<(Arc<str>, Vec<Marker>)>,
    vacant: Vec<u32>,
    next: i64,
    /// Markers of all sessions.
    pub size: i64,
    pub coverage: Coverage,
}

impl MarkerBook {
    pub fn session(&self, name: &str) -> Option<u32> {
        self.names.get(name).copied()
    }

    pub fn session_count(&self) -> usize {
        self.names.len()
    }

    /// Every session with markers, by name.
    pub fn sessions(&self) -> Vec<(Arc<str>, u32)> {
        let mut all: Vec<_> = self.names.iter().map(|(name, number)| (Arc::clone(name), *number)).collect();
        all.sort_unstable();
        all
    }

    pub fn drafts(&self, trie: &Trie, session: Option<u32>) -> Vec<Draft> {
        let Some(number) = session else { return Vec::new() };
        let spot = |anchor: AnchorId| {
            let at = trie.anchors.get(anchor);
            Spot { node: at.node, length: at.length }
        };
        let markers = self.sessions[number as usize].1.iter();
        markers
            .map(|marker| Draft {
                frontier: spot(marker.frontier),
                alternate: (marker.alternate != NONE).then(|| spot(marker.alternate)),
                ..marker.draft
            })
            .collect()
    }

    // -- registering and releasing

    /// Apply a finished turn; `nodes` end at its frontier and alternate. Answers the positions let go of.
    pub fn register(
        &mut self,
        trie: &mut Trie,
        session: &str,
        generation: i64,
        turn: &Turn,
        nodes: (Option<Spot>, Option<Spot>),
    ) -> Positions {
        let number = self.session(session);
        let before = self.drafts(trie, number);
        let kept: Vec<Draft> = before
            .iter()
            .filter(|draft| !ended_by(trie, draft, generation, turn, nodes.0))
            .copied()
            .collect();
        let Some(frontier) = nodes.0 else {
            return self.replace(trie, session, before, kept);
        };
        let (passed, mut others): (Vec<Draft>, Vec<Draft>) =
            kept.into_iter().partition(|draft| trie.is_prefix(draft.frontier.node, frontier.node));
        let ahead = passed
            .iter()
            .reduce(|best, other| if other.frontier.length > best.frontier.length { other } else { best });
        let new = Draft {
            number: ahead.map_or_else(|| self.take_number(), |draft| draft.number),
            generation,
            frontier,
            alternate: nodes.1,
            start_seq: turn.start_seq,
            finish_seq: turn.finish_seq,
            left_for: NOT_LEFT,
        };
        if let Some(draft) = ahead
            && !draft.is_left()
            && frontier.length > draft.frontier.length
        {
            others = still_wanted(others, draft.number);
        }
        let there: Vec<i64> = others.iter().map(|draft| draft.number).collect();
        for draft in &mut others {
            // One that was left for a branch that is gone is left for this one.
            if draft.finish_seq < turn.start_seq && !there.contains(&draft.left_for) {
                draft.left_for = new.number;
            }
        }
        others.push(new);
        others.sort_by_key(|draft| draft.finish_seq); // least recently finished first out
        let surplus = others.len().saturating_sub(trie.config.max_markers);
        others.drain(..surplus);
        self.replace(trie, session, before, others)
    }

    /// Let go of the markers with generation <= `generation`.
    pub fn drop_through(&mut self, trie: &mut Trie, session: &str, generation: i64) -> Positions {
        let before = self.drafts(trie, self.session(session));
        let after = before.iter().filter(|draft| draft.generation > generation).copied().collect();
        self.replace(trie, session, before, after)
    }

    /// What `drop_through` would let go of.
    pub fn would_drop(&mut self, trie: &Trie, session: &str, generation: i64) -> Positions {
        let before = self.drafts(trie, self.session(session));
        let after: Vec<Draft> =
            before.iter().filter(|draft| draft.generation > generation).copied().collect();
        self.coverage.difference(trie, &before, &after).0
    }

    /// After data was lost: move markers whose boundary no longer votes to the deepest one above that does.
    pub fn repair(&mut self, trie: &mut Trie, mut disturbed: Vec<u32>) {
        disturbed.sort_unstable();
        disturbed.dedup();
        let mut moves: Vec<Move> = Vec::new();
        for number in disturbed {
            let before = self.drafts(trie, Some(number));
            let after: Vec<Draft> = before.iter().filter_map(|draft| settled(trie, draft)).collect();
            if !before.is_empty() {
                moves.push(Move { number, before, after });
            }
        }
        self.adjust(trie, moves);
    }

    fn take_number(&mut self) -> i64 {
        self.next += 1;
        self.next
    }

    /// Put a session's markers, adjust the counts, and answer the positions it no longer references.
    fn replace(
        &mut self,
        trie: &mut Trie,
        session: &str,
        before: Vec<Draft>,
        after: Vec<Draft>,
    ) -> Positions {
        if before.is_empty() && after.is_empty() {
            return Vec::new();
        }
        let number = self.session(session).unwrap_or_else(|| self.open(trie, session));
        self.adjust(trie, vec![Move { number, before, after }])
    }

    /// Put the markers of several sessions in one step: a piece that passes from one to another is wanted throughout.
    fn adjust(&mut self, trie: &mut Trie, moves: Vec<Move>) -> Positions {
        for spot in moves.iter().flat_map(|at| &at.after).flat_map(Draft::spots) {
            trie.cut_regions(spot.node);
        }
        let changes: Vec<_> =
            moves.iter().map(|at| self.coverage.difference(trie, &at.before, &at.after)).collect();
        for (at, (_, new)) in moves.iter().zip(&changes) {
            want(trie, at.number, new);
        }
        let mut gone = Vec::new();
        for (at, (old, _)) in moves.iter().zip(changes) {
            let_go(trie, at.number, &old);
            gone.extend(old);
        }
        for Move { number, after, .. } in moves {
            self.put(trie, number, after);
        }
        gone
    }

    fn open(&mut self, trie: &mut Trie, session: &str) -> u32 {
        let name: Arc<str> = session.into();
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.sessions.push((Arc::clone(&name), Vec::new()));
            trie.waits.push(None);
            (self.sessions.len() - 1) as u32
        });
        self.sessions[number as usize].0 = Arc::clone(&name);
        self.names.insert(name, number);
        number
    }

    /// List the boundaries at their nodes; a session without markers is forgotten, and what it waited for.
    fn put(&mut self, trie: &mut Trie, number: u32, drafts: Vec<Draft>) {
        let markers = std::mem::take(&mut self.sessions[number as usize].1);
        let place = place_in_queue(trie.waits[number as usize], number); // `ert` asks who ends where
        for marker in &markers {
            let node = trie.anchors.get(marker.frontier).node;
            swap(trie.arena.cell_mut(node, FULL), (place, None));
            trie.mark(node);
        }
        for draft in &drafts {
            swap(trie.arena.cell_mut(draft.frontier.node, FULL), (None, place));
            trie.mark(draft.frontier.node);
        }
        let Trie { anchors, arena, waits, .. } = trie;
        self.size += drafts.len() as i64 - markers.len() as i64;
        for marker in markers {
            anchors.remove(arena, marker.frontier);
            if marker.alternate != NONE {
                anchors.remove(arena, marker.alternate);
            }
        }
        if drafts.is_empty() {
            waits[number as usize] = None;
            self.names.remove(&self.sessions[number as usize].0);
            self.vacant.push(number);
            return;
        }
        let mut anchor = |spot: Spot| anchors.add(arena, spot.node, spot.length, number);
        self.sessions[number as usize].1 = drafts
            .into_iter()
            .map(|draft| Marker {
                draft,
                frontier: anchor(draft.frontier),
                alternate: draft.alternate.map_or(NONE, &mut anchor),
            })
            .collect();
    }

    /// Say what a session does; every piece that it references is ranked anew, and notes the key of an idle one.
    pub fn expect(&mut self, trie: &mut Trie, session: &str, wait: Wait) {
        let Some(number) = self.session(session) else { return };
        let before = trie.waits[number as usize].replace(wait);
        let places = (place_in_queue(before, number), place_in_queue(Some(wait), number));
        let drafts = self.drafts(trie, Some(number));
        let (_, all) = self.coverage.difference(trie, &[], &drafts);
        for (component, id) in all {
            let cell = trie.arena.cell_mut(id, component);
            if let Wait::Idle { key_ns, .. } = wait {
                cell.noted_ns = if cell.live == 1 { key_ns } else { cell.noted_ns.max(key_ns) };
            }
            if component != FULL {
                swap(cell, places);
            }
            trie.mark(id);
        }
        for tip in drafts {
            swap(trie.arena.cell_mut(tip.frontier.node, FULL), places);
        }
    }

    /// Positions that a session references, from scratch, for `check`.
    pub fn recount(&mut self, trie: &Trie, number: u32) -> Positions {
        let drafts = self.drafts(trie, Some(number));
        self.coverage.difference(trie, &[], &drafts).1
    }
}

/// A session leaves its place among those that are queued for a piece, and takes another.
fn swap(cell: &mut Cell, (from, to): (Option<Queued>, Option<Queued>)) {
    if let (Some(place), Some(queue)) = (from, &mut cell.pending) {
        queue.remove(&place);
        if queue.is_empty() {
            cell.pending = None;
        }
    }
    if let Some(place) = to {
        cell.pending.get_or_insert_default().insert(place);
    }
}

/// One more session wants these pieces.
fn want(trie: &mut Trie, number: u32, positions: &Positions) {
    let place = place_in_queue(trie.waits[number as usize], number);
    for (component, id) in positions {
        let cell = trie.arena.cell_mut(*id, *component);
        cell.live += 1;
        cell.whose = cell.whose.wrapping_add(number);
        cell.released = false;
        if *component != FULL {
            swap(cell, (None, place));
        }
        trie.mark(*id);
    }
}

/// One session less wants these pieces; what nobody wants any more is released.
fn let_go(trie: &mut Trie, number: u32, positions: &Positions) {
    let place = place_in_queue(trie.waits[number as usize], number);
    for (component, id) in positions {
        let cell = trie.arena.cell_mut(*id, *component);
        cell.live -= 1;
        cell.whose = cell.whose.wrapping_sub(number);
        if cell.live == 0 {
            cell.released = true;
            cell.noted_ns = 0;
        }
        if *component != FULL {
            swap(cell, (place, None));
        }
        trie.mark(*id);
    }
}

/// The marker at what still votes; None when nothing does.
fn settled(trie: &mut Trie, draft: &Draft) -> Option<Draft> {
    let mut votable = |spot: Spot| {
        let length = spot.length.min(trie.end(spot.node));
        let (node, length) = trie.deepest_votable(spot.node, length);
        (node != ORIGIN).then(|| Spot { node: trie.cut(node, length), length })
    };
    let frontier = votable(draft.frontier)?;
    let alternate = draft.alternate.and_then(&mut votable);
    Some(Draft { frontier, alternate, ..*draft })
}

/// Whether a registering turn lets this marker go: an older generation, or a branch that it declares dead.
fn ended_by(trie: &Trie, draft: &Draft, generation: i64, turn: &Turn, frontier: Option<Spot>) -> bool {
    if frontier.is_some_and(|spot| trie.is_prefix(draft.frontier.node, spot.node)) {
        return false;
    }
    let dead_branch = turn.superseded && draft.finish_seq < turn.start_seq;
    dead_branch || draft.generation < generation
}

/// Without those left for the extended branch, or for one that goes with them.
fn still_wanted(mut drafts: Vec<Draft>, extended: i64) -> Vec<Draft> {
    let mut dead = vec![extended];
    loop {
        let more: Vec<i64> = drafts
            .iter()
            .filter(|draft| dead.contains(&draft.left_for) && !dead.contains(&draft.number))
            .map(|draft| draft.number)
            .collect();
        if more.is_empty() {
            drafts.retain(|draft| !dead.contains(&draft.left_for));
            return drafts;
        }
        dead.extend(more);
    }
}
