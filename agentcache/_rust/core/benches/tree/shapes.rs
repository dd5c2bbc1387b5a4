//! The shapes: rounds, lookups, evictions, sessions.

use agentcache_core::{Offer, ReleaseMode, Tier};

use crate::rows::{Place, Rows};
use crate::world::{STEPS, World, timed, turn_of};

const ROUNDS: usize = 200;
const ROUND_TOKENS: usize = 200;
const PASSES: usize = 5;
const LAST: usize = 20;

/// Per round and step the least of the passes (best), or their median; then the mean, or the median of the last 20.
pub fn rounds(rows: &mut Rows, components: &str, page: usize) {
    let passes: Vec<Vec<[f64; 5]>> = (0..PASSES).map(|_| converse(components, page)).collect();
    let place =
        Place { components, page, tokens: ROUNDS * ROUND_TOKENS, referenced: true, ..Place::default() };
    let picked = [0, PASSES / 2].map(|rank| {
        let round = |at: usize| {
            std::array::from_fn::<f64, 5, _>(|step| {
                let mut times: Vec<f64> = passes.iter().map(|pass| pass[at][step]).collect();
                times.sort_by(f64::total_cmp);
                times[rank]
            })
        };
        (0..ROUNDS).map(round).collect::<Vec<_>>()
    });
    let whole = |rounds: &Vec<[f64; 5]>| rounds.iter().map(|steps| steps.iter().sum()).collect::<Vec<f64>>();
    rows.figure("round", place, picked.each_ref().map(|rounds| mean(&whole(rounds))), PASSES);
    let last = picked.each_ref().map(|rounds| median(&whole(rounds)[ROUNDS - LAST..]));
    rows.figure("round_last20", place, last, PASSES);
    for (at, step) in STEPS.iter().enumerate() {
        let one = |rounds: &Vec<[f64; 5]>| mean(&rounds.iter().map(|steps| steps[at]).collect::<Vec<_>>());
        rows.figure(&format!("round_{step}"), place, picked.each_ref().map(one), PASSES);
    }
}

fn converse(components: &str, page: usize) -> Vec<[f64; 5]> {
    let mut world = World::new(components, page);
    let context = world.tokens(ROUNDS * ROUND_TOKENS);
    let ends = (1..=ROUNDS).map(|number| number * ROUND_TOKENS);
    ends.map(|end| world.turn("s", &context[..end], end - ROUND_TOKENS / 2, end as i64)).collect()
}

/// Match a whole path, then branch off at its end again and again.
pub fn lookups(rows: &mut Rows, (page, tokens): (usize, usize), shape: &str, step: usize) {
    let mut world = World::new("FULL", page);
    let mut context = world.tokens(tokens);
    let boundary = world.grow(&context, step.max(page).min(tokens));
    let place = Place { components: "FULL", page, tokens, referenced: true, shape, ..Place::default() };
    let key = world.key(&context);
    let nanos = (0..500).map(|now| timed(|| world.core.match_prefix(key, tokens as i64, now)).1);
    rows.add("match", place, nanos.collect());
    let lease = world.core.lock(boundary, 0).expect("on the device").lease;
    let end = tokens + world.whole(200);
    let nanos = (0..60).map(|_| {
        context.truncate(tokens);
        world.extend(&mut context, end - tokens);
        let (full, pieces) = world.offer(tokens, end);
        let offer = Offer {
            full: &full,
            pieces: &pieces,
            after: Some(lease),
            tier: Tier::Device,
            priority: 0,
            full_from: None,
        };
        let (key, now) = (world.key(&context), world.now());
        timed(|| world.core.insert(key, &offer, now).expect("a good offer")).1
    });
    rows.add("insert", place, nanos.collect());
}

/// One-page leaves, 100 under each parent of four pages; ask for slots of the last component.
pub fn evictions(rows: &mut Rows, components: &str, leaves: usize, referenced: bool) {
    let page = 16;
    let mut world = World::new(components, page);
    let mut tokens = Vec::new();
    for number in 0..leaves {
        tokens.truncate(4 * page);
        if number % 100 == 0 {
            tokens = world.tokens(4 * page);
            world.add(&tokens);
        }
        world.extend(&mut tokens, page);
        let leaf = world.add(&tokens).frontier;
        if referenced {
            world.core.reference(&format!("s{number}"), 1, &turn_of(leaf, None, 0), 0).expect("fresh");
        }
    }
    let component = world.rules.len() - 1;
    let place = Place { components, page, tokens: 5 * page, leaves: Some(leaves), referenced, shape: "" };
    for (want, calls) in [(1, 1_000), (1_000, 5)] {
        let nanos = (0..calls).map(|_| {
            let (room, now) = (vec![0; component + 1], world.now());
            let (answer, took) = timed(|| world.core.evict(component, Tier::Device, want, &room, now, None));
            assert!(answer.expect("a component").freed >= want);
            took
        });
        rows.add(&format!("evict_{want}"), place, nanos.collect());
    }
}

/// A thousand sessions of ten turns on one prompt: first reference, later ones, close.
pub fn sessions(rows: &mut Rows, components: &str) {
    let mut world = World::new(components, 1);
    let prompt = world.tokens(1_024);
    let (mut opens, mut references) = (Vec::new(), Vec::new());
    for session in 0..1_000 {
        let mut context = prompt.clone();
        world.extend(&mut context, 2_000);
        for number in 0..10 {
            let end = 1_024 + 200 * (number + 1);
            let took = world.turn(&format!("s{session}"), &context[..end], end - 100, number as i64)[4];
            if number == 0 { opens.push(took) } else { references.push(took) }
        }
    }
    let closes = (0..1_000).map(|session| {
        let (name, now) = (format!("s{session}"), world.now());
        timed(|| world.core.release(&name, 1, ReleaseMode::Release, now)).1
    });
    let place = Place { components, page: 1, tokens: 3_024, referenced: true, ..Place::default() };
    rows.add("close", place, closes.collect());
    rows.add("reference", place, references);
    rows.add("open", Place { tokens: 1_224, ..place }, opens);
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / f64::from(numbers.len() as u32)
}

fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
