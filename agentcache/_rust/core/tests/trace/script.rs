//! A trace file as values.

use std::collections::BTreeMap;
use std::fmt;

use agentcache_core::{Config, Order, OrderBase, PageHash, Rule};

pub type Words = BTreeMap<String, String>;

/// A recorded trace: what the core is built from, and what happens to it.
pub struct Script {
    pub config: Config,
    pub lines: Vec<Line>,
}

pub enum Line {
    Space(PageHash),
    /// The first tokens of an earlier key, and the rest.
    Key {
        space: usize,
        from: (usize, usize),
        rest: Vec<i32>,
    },
    Call(Call),
}

/// One call: its name (the line's number), the method, the arguments, and the recorded answer with the state after it.
#[derive(Clone, Debug)]
pub struct Call {
    pub name: String,
    pub method: String,
    pub words: Words,
    pub expected: String,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.method)?;
        self.words.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

impl Script {
    pub fn parse(text: &str) -> Result<Script, String> {
        let mut lines = text.lines();
        if lines.next() != Some("agentcache-trace 1") {
            return Err("not a trace".into());
        }
        let config = config(&words(lines.next().unwrap_or_default()));
        let lines = lines.map(line).collect();
        Ok(Script { config, lines })
    }
}

fn line(text: &str) -> Line {
    let (asked, expected) = text.split_once(" => ").unwrap_or((text, ""));
    let words = words(asked);
    let mut parts = asked.split(' ');
    let name = parts.next().unwrap_or_default();
    match name {
        "space" => Line::Space(digest(&words["digest"])),
        "key" => {
            let from = words.get("from").and_then(|from| from.split_once('/')).unwrap_or(("0", "0"));
            Line::Key {
                space: number(&words, "space"),
                from: (from.0.parse().unwrap_or(0), from.1.parse().unwrap_or(0)),
                rest: numbers(&words["tokens"]),
            }
        }
        _ => Line::Call(Call {
            name: name.into(),
            method: parts.next().unwrap_or_default().into(),
            words,
            expected: expected.into(),
        }),
    }
}

/// The `name=value` words of a line.
fn words(line: &str) -> Words {
    let pairs = line.split(' ').filter_map(|word| word.split_once('='));
    pairs.map(|(name, value)| (name.into(), value.into())).collect()
}

/// A word as a number, the nearest that there is; 0 where it is missing or is none.
pub fn number<T: TryFrom<i64> + Default>(words: &Words, name: &str) -> T {
    T::try_from(words.get(name).map_or(0, |word| nearest(word))).unwrap_or_default()
}

/// A number, kept within 64 bits; 0 where it is none.
pub fn nearest(word: &str) -> i64 {
    let number: i128 = word.parse().unwrap_or_default();
    number.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// A list of numbers and of runs `first..last`, rising or falling.
pub fn numbers(text: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once("..").unwrap_or((part, part));
        let (first, last): (i32, i32) = (first.parse().unwrap_or(0), last.parse().unwrap_or(0));
        if first <= last {
            found.extend(first..=last);
        } else {
            found.extend((last..=first).rev());
        }
    }
    found
}

fn digest(hex: &str) -> PageHash {
    let mut found = PageHash::default();
    for (byte, pair) in found.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte =
            std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok()).expect("hex");
    }
    found
}

fn config(words: &Words) -> Config {
    let specs: Vec<Vec<&str>> = words["specs"].split(',').map(|spec| spec.split(':').collect()).collect();
    Config {
        page_tokens: number(words, "page"),
        grid_tokens: number(words, "grid"),
        rules: specs.iter().map(|spec| rule(spec)).collect(),
        names: specs.iter().map(|spec| spec[0].into()).collect(),
        order: match words["order"].as_str() {
            "lru" => Order::Lru,
            "session" => Order::Session,
            _ => Order::Ert,
        },
        base: match words["base"].as_str() {
            "lru" => OrderBase::Lru,
            "lfu" => OrderBase::Lfu,
            _ => OrderBase::Priority,
        },
        write_back: words["write_back"] == "1",
        host_tier: words["host"] == "1",
        emit_events: words["events"] == "1",
        max_markers: number(words, "markers"),
        unclaimed_ns: number(words, "unclaimed"),
        instance: 1,
    }
}

fn rule(spec: &[&str]) -> Rule {
    let tokens = spec.get(2).map_or(0, |tokens| tokens.parse().expect("a number of tokens"));
    match spec[1] {
        "path" => Rule::Path,
        "window" => Rule::Window { tokens },
        _ => Rule::Checkpoint { grid_tokens: tokens },
    }
}
