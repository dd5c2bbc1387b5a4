//! Asks a core what a trace asked. Names that nothing answered stand for handles that this core never issued.

use std::collections::HashMap;

use agentcache_core::{
    Boundary, Config, Effect, Inserted, Key, Locked, MatchResult, NamespaceId, NodeRef, Offer, Piece,
    Planned, ReleaseMode, Result, Tier, TreeCore, Turn, Wait,
};

use super::script::{Call, Line, Words, nearest, number, numbers};
use super::wording::{Wording, refused};

const FOREIGN: i64 = 1 << 40;

/// A core, its keys, and what a trace calls its answers.
pub struct Player {
    pub core: TreeCore,
    wording: Wording,
    spaces: Vec<NamespaceId>,
    keys: Vec<(Vec<i32>, NamespaceId)>,
    boundaries: HashMap<String, Boundary>,
    leases: HashMap<String, i64>,
    jobs: HashMap<String, i64>,
}

impl Player {
    pub fn new(config: Config) -> Self {
        let core = TreeCore::new(config);
        let wording = Wording::new(core.config(), core.snapshot().epoch);
        Player {
            core,
            wording,
            spaces: Vec::new(),
            keys: Vec::new(),
            boundaries: HashMap::new(),
            leases: HashMap::new(),
            jobs: HashMap::new(),
        }
    }

    /// Do what a line says; answers a call in the words of the trace.
    pub fn take(&mut self, line: &Line) -> Option<String> {
        match line {
            Line::Space(digest) => self.spaces.push(self.core.namespace(*digest)),
            Line::Key { space, from, rest } => {
                let mut tokens = self.keys.get(from.0).map_or_else(Vec::new, |key| key.0[..from.1].to_vec());
                tokens.extend(rest);
                self.keys.push((tokens, self.spaces[*space]));
            }
            Line::Call(call) => {
                let said = self.call(call).unwrap_or_else(|error| refused(error.kind));
                let unseen = call.method == "peek";
                let state = if unseen { "-".into() } else { self.wording.digest(&self.core.snapshot()) };
                return Some(format!("{said} | {state}"));
            }
        }
        None
    }

    /// One call, answered without a look at the state after it.
    pub fn call(&mut self, call: &Call) -> Result<String> {
        let words = &call.words;
        let now = number(words, "now");
        match call.method.as_str() {
            "match" | "peek" => self.find(call, now),
            "insert" => self.insert(call, now),
            "lock" | "relock" | "unlock" => self.protect(call, now),
            "evict" => {
                let (component, room) = (self.component(&words["component"]), self.room(words));
                let at = tier(words, "tier");
                let before = words.contains_key("state").then(|| wait(words));
                let answer = self.core.evict(component, at, number(words, "want"), &room, now, before)?;
                self.called_jobs(&call.name, &answer.effects);
                Ok(self.wording.evicted(&answer))
            }
            "backup" | "load" | "commit" => self.transfer(call, now),
            "expect" => {
                self.core.expect(&unquoted(&words["session"]), wait(words), now);
                Ok("done".into())
            }
            _ => self.let_go(call, now),
        }
    }

    fn find(&mut self, call: &Call, now: i64) -> Result<String> {
        let limit = number(&call.words, "limit");
        let (tokens, namespace) = self.key(&call.words);
        let key = Key { tokens: &tokens, namespace };
        let found = if call.method == "peek" {
            self.core.peek(key, limit)?
        } else {
            self.core.match_prefix(key, limit, now)?
        };
        let MatchResult { device, any_tier, .. } = found;
        self.boundaries.insert(format!("{}.d", call.name), device);
        self.boundaries.insert(format!("{}.a", call.name), any_tier);
        Ok(self.wording.matched(&found))
    }

    fn insert(&mut self, call: &Call, now: i64) -> Result<String> {
        let words = &call.words;
        let (tokens, namespace) = self.key(words);
        let (full, pieces) = (numbers(&words["full"]), self.pieces(&words["pieces"]));
        let offer = Offer {
            full: &full,
            pieces: &pieces,
            after: words.get("after").map(|name| self.lease(name)),
            tier: tier(words, "tier"),
            priority: number(words, "prio"),
            full_from: words.get("from").map(|_| number(words, "from")),
        };
        let answer: Inserted = self.core.insert(Key { tokens: &tokens, namespace }, &offer, now)?;
        self.boundaries.insert(format!("{}.f", call.name), answer.frontier);
        self.called_jobs(&call.name, &answer.effects);
        Ok(self.wording.inserted(&answer))
    }

    fn protect(&mut self, call: &Call, now: i64) -> Result<String> {
        let words = &call.words;
        let lease = words.get("lease").map_or(FOREIGN, |name| self.lease(name));
        if call.method == "unlock" {
            let component = words.get("component").map(|name| self.component(name));
            self.core.unlock(lease, component, now)?;
            return Ok("done".into());
        }
        let at = self.boundary(words.get("at"));
        let answer: Locked = if call.method == "lock" {
            self.core.lock(at, now)?
        } else {
            self.core.relock(lease, at, now)?
        };
        self.leases.insert(call.name.clone(), answer.lease);
        Ok(self.wording.locked(&answer))
    }

    fn transfer(&mut self, call: &Call, now: i64) -> Result<String> {
        let words = &call.words;
        if call.method == "commit" {
            let job = self.jobs.get(&words["job"]).copied().unwrap_or(FOREIGN);
            let answer = self.core.commit(job, &self.pieces(&words["landed"]), now)?;
            self.called_jobs(&call.name, &answer.effects);
            return Ok(self.wording.committed(&answer));
        }
        let (at, source, target) =
            (self.boundary(words.get("at")), tier(words, "source"), tier(words, "target"));
        let answer: Planned = if call.method == "backup" {
            let room = words.get("room").map(|_| self.room(words));
            self.core.plan_backup(at, source, target, now, room.as_deref())?
        } else {
            self.core.plan_load(at, source, target, now)?
        };
        if let Some(lease) = answer.lease {
            self.leases.insert(call.name.clone(), lease);
        }
        self.called_jobs(&call.name, &answer.effects);
        Ok(self.wording.planned(&answer))
    }

    fn let_go(&mut self, call: &Call, now: i64) -> Result<String> {
        let words = &call.words;
        let answer = match call.method.as_str() {
            "reference" => {
                let turn = Turn {
                    frontier: words.get("at").map(|name| self.boundary(Some(name))),
                    alternate: words.get("alt").map(|name| self.boundary(Some(name))),
                    start_seq: number(words, "start"),
                    finish_seq: number(words, "finish"),
                    superseded: words["superseded"] == "1",
                };
                self.core.reference(&unquoted(&words["session"]), number(words, "generation"), &turn, now)?
            }
            "release" => {
                let mode = match words["mode"].as_str() {
                    "release" => ReleaseMode::Release,
                    "demote" => ReleaseMode::Demote,
                    "drop" => ReleaseMode::Drop,
                    _ => ReleaseMode::Preview,
                };
                self.core.release(&unquoted(&words["session"]), number(words, "through"), mode, now)
            }
            "clear" => {
                let space = words
                    .get("space")
                    .map(|_| self.spaces[number::<usize>(words, "space") % self.spaces.len()]);
                self.core.clear(space, now)?
            }
            other => unreachable!("no method {other}"),
        };
        self.called_jobs(&call.name, &answer.effects);
        Ok(self.wording.released(&answer))
    }

    fn called_jobs(&mut self, name: &str, effects: &[Effect]) {
        let jobs = effects.iter().filter_map(|effect| match effect {
            Effect::Move(job) => Some(job.number),
            _ => None,
        });
        self.jobs.extend(jobs.enumerate().map(|(at, job)| (format!("{name}.{at}"), job)));
    }

    // -- arguments

    fn key(&self, words: &Words) -> (Vec<i32>, NamespaceId) {
        self.keys[number::<usize>(words, "key") % self.keys.len()].clone()
    }

    fn boundary(&self, name: Option<&String>) -> Boundary {
        let (known, cut) = name.map_or(("", None), |name| match name.split_once('/') {
            Some((known, cut)) => (known, cut.parse().ok()),
            None => (name.as_str(), None),
        });
        let foreign =
            Boundary { node: NodeRef { index: FOREIGN, generation: FOREIGN }, length: 0, epoch: FOREIGN };
        let found = self.boundaries.get(known).copied().unwrap_or(foreign);
        Boundary { length: cut.unwrap_or(found.length), ..found }
    }

    fn lease(&self, name: &str) -> i64 {
        self.leases.get(name).copied().unwrap_or(FOREIGN)
    }

    fn component(&self, name: &str) -> usize {
        self.wording.names.iter().position(|known| known == name).unwrap_or(usize::MAX)
    }

    fn room(&self, words: &Words) -> Vec<i64> {
        let mut room = vec![0; self.wording.names.len()];
        for (name, count) in words["room"].split(',').filter_map(|word| word.split_once(':')) {
            if let Some(free) = room.get_mut(self.component(name)) {
                *free = nearest(count);
            }
        }
        room
    }

    /// What `Wording::pieces` wrote.
    fn pieces(&self, text: &str) -> Vec<Piece> {
        let words = text.split('+').filter_map(|word| word.split_once('='));
        let pieces = words.filter_map(|(place, slots)| {
            let (name, interval) = place.split_once('[')?;
            let (start, end) = interval.trim_end_matches(']').split_once(',')?;
            Some(Piece {
                component: self.component(name),
                start: start.parse().ok()?,
                end: end.parse().ok()?,
                slots: numbers(slots),
            })
        });
        pieces.collect()
    }
}

fn tier(words: &Words, name: &str) -> Tier {
    match words[name].as_str() {
        "device" => Tier::Device,
        "host" => Tier::Host,
        _ => Tier::External,
    }
}

fn wait(words: &Words) -> Wait {
    let (since_ns, key_ns) = (number(words, "since"), number(words, "wanted"));
    match words["state"].as_str() {
        "running" => Wait::Running { key_ns },
        "pending" => Wait::Pending {
            seq: number(words, "seq"),
            eta_ns: words.get("eta").map(|_| number(words, "eta")),
        },
        _ => Wait::Idle { since_ns, key_ns, hint_ns: words.get("hint").map(|_| number(words, "hint")) },
    }
}

/// Session ids are written as in a URL.
fn unquoted(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let code: Vec<u8> = rest.by_ref().take(2).collect();
            let code = std::str::from_utf8(&code).ok().and_then(|code| u8::from_str_radix(code, 16).ok());
            bytes.extend(code);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
