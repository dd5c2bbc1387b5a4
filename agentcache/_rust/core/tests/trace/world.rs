//! Histories from bytes: what a cache would do with a core, and what nobody should, over small alphabets.
//!
//! After every call the core checks itself, and every slot is free, the tree's, or in flight.

use agentcache_core::{
    Boundary, Effect, Error, Job, Key, Offer, Piece, ReleaseMode, Rule, Tier, TreeCore, Turn, Wait,
};

use super::choices::{Choices, Stock, config};

const TREE_TIERS: [Tier; 2] = [Tier::Device, Tier::Host];
const LONGEST: usize = 40;

/// Make a core and live through a history; panics at the first fault.
pub fn live(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut world = World::new(&mut choices);
    while !choices.over() {
        let _refused = world.step(&mut choices);
        world.judge();
    }
    world.end();
}

/// A boundary and the path that it lies on.
#[derive(Clone)]
struct Place {
    boundary: Boundary,
    tokens: Vec<i32>,
    space: u32,
}

/// A job under way: per component, page start and end, the destination slot.
struct Flight {
    job: Job,
    targets: Vec<(usize, i64, i64, i32)>,
}

struct World {
    core: TreeCore,
    stock: Stock,
    keys: Vec<(Vec<u8>, u32)>,
    places: Vec<Place>,
    leases: Vec<(i64, Place)>,
    flights: Vec<Flight>,
    now: i64,
    sequence: i64,
}

impl World {
    fn new(choices: &mut Choices<'_>) -> Self {
        let config = config(choices);
        let sizes = [choices.one(&[9, 20, 60]), choices.one(&[2, 9, 40])];
        let stock = Stock::new(&config, sizes);
        let mut core = TreeCore::new(config);
        for space in 0..2 {
            assert_eq!(core.namespace([space; 32]), u32::from(space));
        }
        let (keys, places, leases, flights) = Default::default();
        World { core, stock, keys, places, leases, flights, now: 1000, sequence: 0 }
    }

    fn step(&mut self, choices: &mut Choices<'_>) -> Result<(), Error> {
        self.now += i64::from(choices.one(&[1, 1, 0, 9]));
        match choices.below(16) {
            0..=3 => self.publish(choices),
            4 | 5 => self.find(choices),
            6 | 7 => self.protect(choices),
            8 => self.unlock(choices),
            9 | 10 => self.evict(choices),
            11 => self.transfer(choices),
            12 => self.land(choices),
            13 => self.register(choices),
            14 => self.let_go(choices),
            _ => {
                self.expect(choices);
                Ok(())
            }
        }
    }

    // -- keys and places

    /// A key met before, a fork of one, or more of one.
    fn key(&mut self, choices: &mut Choices<'_>) -> (Vec<i32>, u32) {
        let (mut letters, space) = match choices.below(8) {
            0 => (Vec::new(), u32::from(choices.byte() % 2)),
            _ if self.keys.is_empty() => (Vec::new(), 0),
            _ => self.keys[choices.below(self.keys.len())].clone(),
        };
        if choices.below(3) > 0 {
            letters.truncate(choices.below(letters.len() + 1));
            let (letter, count) = (choices.byte() % 3, 1 + choices.below(12));
            letters.extend(std::iter::repeat_n(letter, count));
            letters.truncate(LONGEST);
            self.keys.push((letters.clone(), space));
            if self.keys.len() > 10 {
                self.keys.remove(0);
            }
        }
        let page = self.core.config().page_tokens as i32;
        (
            letters
                .iter()
                .flat_map(|letter| (0..page).map(move |at| i32::from(*letter) * 100 + at))
                .collect(),
            space,
        )
    }

    fn remember(&mut self, boundary: Boundary, tokens: &[i32], space: u32) {
        let tokens = tokens[..boundary.length as usize].to_vec();
        self.places.push(Place { boundary, tokens, space });
        if self.places.len() > 12 {
            self.places.remove(0);
        }
    }

    /// A place met before, perhaps further up its path.
    fn place(&self, choices: &mut Choices<'_>) -> Option<Place> {
        let place = self.places.get(choices.below(self.places.len().max(1)))?;
        let mut place = place.clone();
        if choices.below(4) == 0 {
            let page = self.core.config().page_tokens as usize;
            place.tokens.truncate(page * choices.below(place.tokens.len() / page + 1));
            place.boundary.length = place.tokens.len() as i64;
        }
        Some(place)
    }

    // -- calls

    fn find(&mut self, choices: &mut Choices<'_>) -> Result<(), Error> {
        let (tokens, space) = self.key(choices);
        let key = Key { tokens: &tokens, namespace: space };
        let limit = if choices.below(3) == 0 { choices.below(tokens.len() + 2) } else { tokens.len() } as i64;
        let peeked = self.core.peek(key, limit)?;
        if choices.below(3) > 0 {
            assert_eq!(peeked, self.core.match_prefix(key, limit, self.now)?);
        }
        assert!(peeked.device.length <= peeked.any_tier.length);
        self.remember(peeked.device, &tokens, space);
        self.remember(peeked.any_tier, &tokens, space);
        Ok(())
    }

    fn publish(&mut self, choices: &mut Choices<'_>) -> Result<(), Error> {
        let (mut tokens, mut space) = self.key(choices);
        let lease = if choices.below(2) == 0 { self.leases.get(choices.below(6)).cloned() } else { None };
        if let Some((_, place)) = &lease {
            space = place.space;
            tokens.splice(..tokens.len().min(place.tokens.len()), place.tokens.iter().copied());
        }
        let start = lease.as_ref().map_or(0, |(_, place)| place.tokens.len());
        let tier =
            if choices.below(4) == 0 && self.core.config().host_tier { Tier::Host } else { Tier::Device };
        let page = self.core.config().page_tokens as usize;
        let later = choices.below((tokens.len() - start) / page + 1);
        let full_from = start + page * choices.one(&[0, 0, 0, later]);
        let ranges = (start, full_from, tokens.len());
        let Some(pieces) = self.offered(choices, ranges, tier) else { return Ok(()) };
        let offer = Offer {
            full: &pieces[0].slots,
            pieces: &pieces[1..],
            after: lease.map(|(lease, _)| lease),
            tier,
            priority: i64::from(choices.byte() % 3),
            full_from: (full_from > start).then_some(full_from as i64),
        };
        let answer = self.core.insert(Key { tokens: &tokens, namespace: space }, &offer, self.now);
        let Ok(answer) = answer else {
            self.stock.return_pieces(&pieces, tier);
            return answer.map(drop);
        };
        self.stock.return_pieces(&answer.kept, tier);
        self.apply(&answer.effects);
        self.remember(answer.frontier, &tokens, space);
        Ok(())
    }

    /// FULL from some position on, and of each other component some part of what may lie in the whole range; None
    /// without the slots.
    fn offered(
        &mut self,
        choices: &mut Choices<'_>,
        (start, full_from, end): (usize, usize, usize),
        tier: Tier,
    ) -> Option<Vec<Piece>> {
        let (page, rules) = (self.core.config().page_tokens as usize, self.core.config().rules.clone());
        let mut pieces = Vec::new();
        for (component, rule) in rules.iter().enumerate() {
            let ends: Vec<usize> = (start + page..=end).step_by(page).collect();
            let part = if choices.below(3) == 0 { choices.byte() } else { u8::MAX };
            for end in &ends {
                let here = part >> (end / page % 8) & 1 == 1;
                let (start, wanted) = match rule {
                    Rule::Path => (end - page, *end > full_from),
                    Rule::Window { .. } => (end - page, here),
                    Rule::Checkpoint { grid_tokens } => (*end, here && end % *grid_tokens as usize == 0),
                };
                if wanted {
                    let Some(slot) = self.stock.take(component, tier) else {
                        self.stock.return_pieces(&pieces, tier);
                        return None;
                    };
                    let (start, end) = (start as i64, *end as i64);
                    pieces.push(Piece { component, start, end, slots: vec![slot] });
                }
            }
        }
        let full = pieces.iter().filter(|piece| piece.component == 0).flat_map(|piece| piece.slots.clone());
        let (start, end) = (full_from as i64, end as i64);
        let whole = Piece { component: 0, start, end, slots: full.collect() };
        pieces.retain(|piece| piece.component != 0);
        pieces.insert(0, whole);
        Some(pieces)
    }

    fn protect(&mut self, choices: &mut Choices<'_>) -> Result<(), Error> {
        let Some(place) = self.place(choices) else { return Ok(()) };
        if choices.below(3) == 0 && !self.leases.is_empty() {
            let at = choices.below(self.leases.len());
            self.core.relock(self.leases[at].0, place.boundary, self.now)?;
            self.leases[at].1 = place;
        } else if self.leases.len() < 6 {
            let locked = self.core.lock(place.boundary, self.now)?;
            self.leases.push((locked.lease, place));
        }
        Ok(())
    }

    fn unlock(&mut self, choices: &mut Choices<'_>) -> Result<(), Error> {
        if self.leases.is_empty() {
            return self.core.unlock(choices.byte().into(), None, self.now);
        }
        let at = choices.below(self.leases.len());
        if choices.below(4) == 0 {
            return self.core.unlock(self.leases[at].0, Some(choices.below(5)), self.now);
        }
        self.core.unlock(self.leases.remove(at).0, None, self.now)
    }

    fn evict(&mut self, choices: &mut Choices<'_>) -> Result<(), Error> {
        let component = choices.below(self.core.config().rules.len());
        let (tier, want) = (choices.one(&TREE_TIERS), i64::from(choices.one(&[1, 1, 2, 5, 60])));
        let room = self.stock.room(choices);
        let answer = self.core.evict(component, tier, want, &room, self.now, None)?;
        assert_eq!(answer.short, (want - answer.freed - answer.moving).max(0));
        self.apply(&answer.effects);
        Ok(())
    }

    fn transfer(&mut self, choices: &mut Choices<'_>) -> Result<(), Error> {
        let Some(place) = self.place(choices) else { return Ok(()) };
        if self.flights.len() > 5 || self.leases.len() > 5 {
            return Ok(());
        }
        let (device, host, external) = (Tier::Device, Tier::Host, Tier::External);
        let routes = [(device, host), (device, external), (host, external), (host, device), (external, host)];
        let (source, target) = choices.one(&routes);
        let planned = if target == device {
            self.core.plan_load(place.boundary, source, target, self.now)?
        } else {
            let room = (choices.below(2) == 0).then(|| self.stock.room(choices));
            self.core.plan_backup(place.boundary, source, target, self.now, room.as_deref())?
        };
        if let Some(lease) = planned.lease {
            self.leases.push((lease, place));
        }
        self.apply(&planned.effects);
        Ok(())
    }

    fn land(&mut self, choices: &mut Choices<'_>) -> Result<(), Error> {
        if self.flights.is_empty() {
            return self.core.commit(choices.byte().into(), &[], self.now).map(drop);
        }
        let flight = self.flights.remove(choices.below(self.flights.len()));
        let share = if choices.below(3) == 0 { choices.byte() } else { u8::MAX };
        self.complete(&flight, share)
    }

    fn complete(&mut self, flight: &Flight, share: u8) -> Result<(), Error> {
        let mut landed = Vec::new();
        for (number, (component, start, end, slot)) in flight.targets.iter().enumerate() {
            if share >> (number % 8) & 1 == 1 {
                landed.push(Piece { component: *component, start: *start, end: *end, slots: vec![*slot] });
            } else if flight.job.target != Tier::External {
                self.stock.give_back(*component, flight.job.target, &[*slot]);
            }
        }
        let answer = self.core.commit(flight.job.number, &landed, self.now)?;
        self.apply(&answer.effects);
        Ok(())
    }

    fn register(&mut self, choices: &mut Choices<'_>) -> Result<(), Error> {
        let frontier = self.place(choices).map(|place| place.boundary);
        let alternate =
            if choices.below(2) == 0 { None } else { self.place(choices).map(|place| place.boundary) };
        self.sequence += 2;
        let turn = Turn {
            frontier,
            alternate,
            start_seq: self.sequence - i64::from(choices.one(&[1, 1, 3, 7])),
            finish_seq: self.sequence,
            superseded: choices.below(8) == 0,
        };
        let (session, generation) = (choices.one(&["s", "t", "u"]), 1 + i64::from(choices.byte() % 3));
        let answer = self.core.reference(session, generation, &turn, self.now)?;
        self.apply(&answer.effects);
        Ok(())
    }

    fn let_go(&mut self, choices: &mut Choices<'_>) -> Result<(), Error> {
        if choices.below(4) == 0 {
            let space = choices.one(&[None, Some(0), Some(1)]);
            let answer = self.core.clear(space, self.now)?;
            self.apply(&answer.effects);
            return Ok(());
        }
        let modes = [ReleaseMode::Release, ReleaseMode::Demote, ReleaseMode::Drop, ReleaseMode::Preview];
        let (session, mode) = (choices.one(&["s", "t", "u"]), choices.one(&modes));
        let answer = self.core.release(session, i64::from(choices.byte() % 4), mode, self.now);
        self.apply(&answer.effects);
        Ok(())
    }

    fn expect(&mut self, choices: &mut Choices<'_>) {
        let since_ns = self.now - i64::from(choices.byte() % 40);
        let key_ns = since_ns - i64::from(choices.byte());
        let hint_ns = choices.one(&[None, Some(0), Some(3), Some(20)]);
        let wait = match choices.below(3) {
            0 => Wait::Running { key_ns },
            1 => Wait::Pending { seq: choices.byte().into(), eta_ns: hint_ns.map(|hint| self.now + hint) },
            _ => Wait::Idle { since_ns, key_ns, hint_ns },
        };
        self.core.expect(choices.one(&["s", "t", "u"]), wait, self.now);
    }

    // -- slots

    fn apply(&mut self, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Free { component, tier, slots } => self.stock.give_back(*component, *tier, slots),
                Effect::Move(job) => self.depart(job),
                Effect::Emit(event) => assert!(self.core.config().emit_events, "{event:?}"),
            }
        }
    }

    /// Every place of a job gets a destination, as far as there are any.
    fn depart(&mut self, job: &Job) {
        let (page, mut targets) = (i64::from(self.core.config().page_tokens), Vec::new());
        for piece in &job.pieces {
            for number in 0..piece.slots.len() as i64 {
                let (start, end) =
                    (piece.start + number * page, (piece.start + (number + 1) * page).min(piece.end));
                let outside = job.target == Tier::External;
                let slot = if outside {
                    Some(targets.len() as i32)
                } else {
                    self.stock.take(piece.component, job.target)
                };
                targets.extend(slot.map(|slot| (piece.component, start, end, slot)));
            }
        }
        self.flights.push(Flight { job: job.clone(), targets });
    }

    /// The core's own invariants, and every slot has one owner.
    fn judge(&mut self) {
        if let Err(broken) = self.core.check() {
            panic!("{broken}");
        }
        for pool in self.core.stats().pools {
            let landing = self.flights.iter().filter(|flight| flight.job.target == pool.tier);
            let landing =
                landing.flat_map(|flight| &flight.targets).filter(|target| target.0 == pool.component);
            let taken = self.stock.taken(pool.component, pool.tier);
            assert_eq!(pool.cached, taken - landing.count() as i64, "slots of {pool:?}");
        }
    }

    /// Everything is let go of, and every slot is free again.
    fn end(mut self) {
        for flight in std::mem::take(&mut self.flights) {
            self.complete(&flight, u8::MAX).expect("a job under way");
        }
        for (lease, _) in std::mem::take(&mut self.leases) {
            self.core.unlock(lease, None, self.now).expect("a lease that is out");
        }
        let answer = self.core.clear(None, self.now).expect("nothing is in use");
        self.apply(&answer.effects);
        self.judge();
        assert!(self.stock.is_full());
    }
}
