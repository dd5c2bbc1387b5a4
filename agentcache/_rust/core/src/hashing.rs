//! Page hashes: the chain of `keys.py`, computed when somebody first asks.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use sha2::{Digest, Sha256};

use crate::arena::{NodeId, ORIGIN};
use crate::trie::Trie;
use crate::values::{NamespaceId, PageHash};

/// Namespaces by number, in the order in which they were met.
#[derive(Debug, Default)]
pub struct Namespaces {
    digests: Vec<PageHash>,
    numbers: HashMap<PageHash, NamespaceId, RandomState>,
}

impl Namespaces {
    /// The number of a digest, the next one if it is new.
    pub fn number(&mut self, digest: PageHash) -> NamespaceId {
        *self.numbers.entry(digest).or_insert_with(|| {
            self.digests.push(digest);
            (self.digests.len() - 1) as NamespaceId
        })
    }

    /// The number of a digest, or one that is never given.
    pub fn known(&self, digest: &PageHash) -> NamespaceId {
        self.numbers.get(digest).copied().unwrap_or(NamespaceId::MAX)
    }

    pub fn digest(&self, number: NamespaceId) -> PageHash {
        self.digests[number as usize]
    }
}

fn chain(previous: &PageHash, page: &[i32]) -> PageHash {
    let mut hash = Sha256::new();
    hash.update(previous);
    for token in page {
        hash.update(token.to_le_bytes());
    }
    hash.finalize().into()
}

impl Trie {
    /// The hash before the first page of a node: its parent's last, or the namespace's.
    pub fn hash_above(&mut self, id: NodeId) -> PageHash {
        let node = self.arena.node(id);
        let (parent, namespace) = (node.parent, node.namespace);
        if parent == ORIGIN {
            return self.namespaces.digest(namespace);
        }
        self.fill_hashes(parent);
        self.arena.node(parent).hashes.as_ref().map_or([0; 32], |hashes| hashes[hashes.len() - 1])
    }

    /// One hash for each slot that a component has on a node: one a page, or that of the page where a state lies. Fills
    /// in those above it that nobody asked for yet.
    pub fn hashes(&mut self, id: NodeId, component: usize) -> &[PageHash] {
        self.fill_hashes(id);
        let hashes = self.arena.node(id).hashes.as_ref().map_or(&[][..], |hashes| hashes.as_slice());
        if self.is_state(component) { &hashes[hashes.len().saturating_sub(1)..] } else { hashes }
    }

    fn fill_hashes(&mut self, id: NodeId) {
        let mut missing = Vec::new();
        let mut at = id;
        while at != ORIGIN && self.arena.node(at).hashes.is_none() {
            missing.push(at);
            at = self.arena.node(at).parent;
        }
        for at in missing.into_iter().rev() {
            let parent = self.arena.node(at).parent;
            let mut previous = match &self.arena.node(parent).hashes {
                Some(hashes) if parent != ORIGIN => hashes[hashes.len() - 1],
                _ => self.namespaces.digest(self.arena.node(at).namespace),
            };
            let page = self.config.page_tokens as usize;
            let hashes = self.arena.node(at).edge().chunks(page).map(|tokens| {
                previous = chain(&previous, tokens);
                previous
            });
            let hashes: Vec<PageHash> = hashes.collect();
            self.arena.node_mut(at).hashes = Some(Box::new(hashes));
        }
    }
}
