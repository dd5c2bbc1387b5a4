//! The native tree core: the contract of `agentcache/tree/api.py`, for everything but custom components.
//!
//! A node is a run of pages of one path on which everything is equal: what is resident where, who protects it, who
//! wants it back, when it was used. Whatever would make two pages of a run differ cuts the run first. So every rule of
//! the reference core, which keeps one node a page, holds here run by run, and costs follow runs.
#![forbid(unsafe_code)]

mod anchors;
mod arena;
mod backing;
mod changes;
mod check;
mod closing;
pub mod config;
pub mod core;
mod coverage;
pub mod error;
mod eviction;
mod hashing;
mod heap;
mod insert;
mod jobs;
mod leases;
mod markers;
mod matching;
mod offers;
mod outline;
mod paths;
mod pieces;
mod ranking;
mod rooms;
mod runs;
mod settlement;
mod trie;
pub mod values;
mod views;
mod vote;

pub use config::{Config, Order, OrderBase, Rule};
pub use core::TreeCore;
pub use error::{Error, Kind, Result};
pub use values::*;
