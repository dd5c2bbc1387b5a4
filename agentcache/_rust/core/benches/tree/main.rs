//! What the core's calls cost in Rust, in the shapes of `agentcache bench tree`: the figures beside the Python ones.
//!
//! `cargo bench --bench tree` prints lines; `-- --json` prints one object with the rows that Python prints.

mod rows;
mod shapes;
mod world;

use rows::Rows;

fn main() {
    let mut rows = Rows::default();
    for components in ["FULL", "FULL+SWA128", "FULL+SWA4096", "FULL+MAMBA", "FULL+SWA128+MAMBA"] {
        for page in [1, 16, 64] {
            shapes::rounds(&mut rows, components, page);
        }
    }
    for page in [1, 16, 64] {
        for (shape, step) in [("one", usize::MAX), ("chain", 200)] {
            for tokens in [1_024, 8_192, 32_768, 131_072] {
                shapes::lookups(&mut rows, (page, tokens), shape, step);
            }
        }
    }
    for components in ["FULL", "FULL+SWA128", "FULL+MAMBA"] {
        for leaves in [10_000, 100_000] {
            for referenced in [false, true] {
                shapes::evictions(&mut rows, components, leaves, referenced);
            }
        }
    }
    for components in ["FULL", "FULL+SWA4096", "FULL+MAMBA"] {
        shapes::sessions(&mut rows, components);
    }
    rows.print(std::env::args().any(|word| word == "--json"));
}
