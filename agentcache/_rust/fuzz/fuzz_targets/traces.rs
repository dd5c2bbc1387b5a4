//! Recorded traces with some calls changed: left out, repeated, exchanged, or with other arguments. Nothing is known
//! about the answers; the core checks itself after each call.
#![no_main]

use std::path::Path;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

#[path = "../../core/tests/trace/mod.rs"]
mod trace;

use trace::script::{Call, Line};
use trace::choices::Choices;
use trace::{Player, Script};

const LONGEST: usize = 60_000;

fn corpus() -> &'static [String] {
    static TRACES: OnceLock<Vec<String>> = OnceLock::new();
    TRACES.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/corpus");
        let mut files: Vec<_> =
            std::fs::read_dir(folder).expect("the corpus").map(|file| file.expect("a file").path()).collect();
        files.sort();
        let texts = files.iter().map(|path| std::fs::read_to_string(path).expect("a readable trace"));
        texts.filter(|text| text.len() < LONGEST).collect()
    })
}

fuzz_target!(|data: &[u8]| {
    let mut choices = Choices::new(data);
    let script = Script::parse(&corpus()[choices.below(corpus().len())]).expect("a trace");
    let mut player = Player::new(script.config);
    let mut before: Vec<Call> = Vec::new();
    for line in script.lines {
        let Line::Call(call) = line else {
            player.take(&line);
            continue;
        };
        for changed in changed(&mut choices, call, &mut before) {
            let _refused = player.call(&changed);
            if let Err(broken) = player.core.check() {
                panic!("{broken}");
            }
        }
    }
});

/// What becomes of a call: mostly itself.
fn changed(choices: &mut Choices<'_>, call: Call, before: &mut Vec<Call>) -> Vec<Call> {
    if choices.over() {
        return vec![call];
    }
    let made = match choices.byte() {
        0..=15 => Vec::new(),
        16..=31 => vec![call.clone(), call.clone()],
        32..=47 if !before.is_empty() => vec![before[choices.below(before.len())].clone(), call.clone()],
        48..=95 => vec![with_another_word(choices, call.clone(), before)],
        96..=111 => vec![with_another_number(choices, call.clone())],
        _ => vec![call.clone()],
    };
    before.push(call);
    made
}

/// One argument as an earlier call of the same method had it: another key, boundary, lease, job or session.
fn with_another_word(choices: &mut Choices<'_>, mut call: Call, before: &[Call]) -> Call {
    let like: Vec<&Call> = before.iter().filter(|other| other.method == call.method).collect();
    if like.is_empty() {
        return call;
    }
    let other = &like[choices.below(like.len())].words;
    let names: Vec<String> = call.words.keys().filter(|name| other.contains_key(*name)).cloned().collect();
    let name = &names[choices.below(names.len())];
    call.words.insert(name.clone(), other[name].clone());
    call
}

/// One number a little more or less, or huge.
fn with_another_number(choices: &mut Choices<'_>, mut call: Call) -> Call {
    let numbers: Vec<(String, i64)> =
        call.words.iter().filter_map(|(name, word)| Some((name.clone(), word.parse().ok()?))).collect();
    if numbers.is_empty() {
        return call;
    }
    let (name, number) = &numbers[choices.below(numbers.len())];
    let near = i64::from(choices.byte()) - 128;
    let changed = match choices.below(8) {
        0 => i64::MAX,
        1 => i64::MIN,
        2 => i64::from(i32::MAX) + near,
        _ => number.saturating_add(near / 16),
    };
    call.words.insert(name.clone(), changed.to_string());
    call
}
