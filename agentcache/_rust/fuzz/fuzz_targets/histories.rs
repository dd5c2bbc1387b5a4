//! Bytes as a history of calls; the core checks itself after each, and every slot has one owner.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../core/tests/trace/mod.rs"]
mod trace;

fuzz_target!(|data: &[u8]| trace::world::live(data));
