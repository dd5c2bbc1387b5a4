//! Stretches of shared storage: cutting one copies nothing.

use std::sync::Arc;

use hashbrown::HashMap;

/// Tokens of an edge. How many is the node's to know.
#[derive(Clone, Debug)]
pub struct Tokens {
    data: Arc<[i32]>,
    from: u32,
}

impl Tokens {
    pub fn new(tokens: &[i32]) -> Self {
        Tokens { data: tokens.into(), from: 0 }
    }

    pub fn first(&self, count: u32) -> &[i32] {
        let from = self.from as usize;
        &self.data[from..from + count as usize]
    }

    pub fn shares(&self, other: &Tokens) -> bool {
        Arc::ptr_eq(&self.data, &other.data)
    }

    /// Whether `count` tokens keep storage of more than four times as many.
    pub fn wasteful(&self, count: u32) -> bool {
        self.data.len() / 4 > count as usize
    }

    /// What follows the first `count` tokens.
    pub fn after(&self, count: u32) -> Self {
        Tokens { data: Arc::clone(&self.data), from: self.from + count }
    }
}

/// The slots of one component on one tier along a run: one a page, or one state at its end.
#[derive(Clone, Debug, Default)]
pub enum Slots {
    #[default]
    Absent,
    One(i32),
    Many(Arc<[i32]>, u32),
}

impl Slots {
    pub fn new(slots: &[i32]) -> Self {
        match slots {
            [] => Slots::Absent,
            [slot] => Slots::One(*slot),
            many => Slots::Many(many.into(), 0),
        }
    }

    /// A stretch of `count` slots of storage that several runs share.
    pub fn shared(data: &Arc<[i32]>, from: u32, count: u32) -> Self {
        if count == 1 { Slots::One(data[from as usize]) } else { Slots::Many(Arc::clone(data), from) }
    }

    pub fn here(&self) -> bool {
        !matches!(self, Slots::Absent)
    }

    pub fn first(&self, count: u32) -> &[i32] {
        match self {
            Slots::Absent => &[],
            Slots::One(slot) => std::slice::from_ref(slot),
            Slots::Many(data, from) => &data[*from as usize..(*from + count) as usize],
        }
    }

    /// Cut `upper` of `upper + lower` pages off the front; `self` keeps the rest.
    pub fn cut(&mut self, upper: u32, lower: u32) -> Slots {
        let Slots::Many(data, from) = std::mem::take(self) else {
            return Slots::Absent;
        };
        *self = Slots::shared(&data, from + upper, lower);
        Slots::shared(&data, from, upper)
    }
}

const CHUNK_BITS: u32 = 9;
const WORDS: usize = 1 << (CHUNK_BITS - 6);

/// A set of slots: a bitmap in chunks, so that one far slot costs one chunk.
#[derive(Debug, Default)]
pub struct SlotSet {
    chunks: HashMap<i32, [u64; WORDS], foldhash::fast::FixedState>,
    size: i64,
}

impl SlotSet {
    fn place(slot: i32) -> (i32, usize, u64) {
        let within = (slot & ((1 << CHUNK_BITS) - 1)) as usize;
        (slot >> CHUNK_BITS, within / 64, 1 << (within % 64))
    }

    pub fn contains(&self, slot: i32) -> bool {
        let (chunk, word, bit) = Self::place(slot);
        self.chunks.get(&chunk).is_some_and(|words| words[word] & bit != 0)
    }

    pub fn insert_all(&mut self, slots: &[i32]) {
        self.each(slots, |word, bit| *word |= bit);
        self.size += slots.len() as i64;
    }

    pub fn remove_all(&mut self, slots: &[i32]) {
        self.each(slots, |word, bit| *word &= !bit);
        self.size -= slots.len() as i64;
    }

    /// Neighbours mostly share a chunk: it is looked up once for all of them.
    fn each(&mut self, slots: &[i32], change: impl Fn(&mut u64, u64)) {
        let mut rest = slots;
        while let [first, ..] = rest {
            let chunk = Self::place(*first).0;
            let words = self.chunks.entry(chunk).or_default();
            let same = rest.iter().take_while(|slot| Self::place(**slot).0 == chunk).count();
            for slot in &rest[..same] {
                let (_, word, bit) = Self::place(*slot);
                change(&mut words[word], bit);
            }
            rest = &rest[same..];
        }
    }

    pub fn len(&self) -> i64 {
        self.size
    }
}
