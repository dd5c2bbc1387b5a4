//! What a tree is built from.

use crate::values::Tier;

/// Which tokens before a boundary a component needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Every token.
    Path,
    /// The `tokens` tokens before it, rounded outward to pages.
    Window { tokens: u32 },
    /// One state at exactly the boundary; states lie at multiples of `grid_tokens`.
    Checkpoint { grid_tokens: u32 },
}

/// Eviction order (design §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Lru,
    Session,
    Ert,
}

/// What decides between equally referenced pieces in the `session` order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderBase {
    Lru,
    Lfu,
    Priority,
}

/// The shape of a tree. `rules[0]` is `Path`; `grid_tokens` is a multiple of `page_tokens`.
#[derive(Clone, Debug)]
pub struct Config {
    pub page_tokens: u32,
    pub grid_tokens: u32,
    /// One rule a component, in spec order.
    pub rules: Vec<Rule>,
    /// What the components are called. The core counts them; this is for whoever reads its answers.
    pub names: Vec<String>,
    pub order: Order,
    pub base: OrderBase,
    /// Whether eviction itself moves data to the host (`write_back`).
    pub write_back: bool,
    pub host_tier: bool,
    pub emit_events: bool,
    pub max_markers: usize,
    /// How much longer than since its last use what no session has, or had, is expected to stay unread (`ert`).
    pub unclaimed_ns: i64,
    /// Parts the handles of this core from those of every other.
    pub instance: u32,
}

impl Config {
    /// The tiers whose residency is in the tree.
    #[must_use]
    pub fn tiers(&self) -> &'static [Tier] {
        if self.host_tier { &[Tier::Device, Tier::Host] } else { &[Tier::Device] }
    }
}
