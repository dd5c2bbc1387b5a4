//! Operations as text and as bytes, for the tests of this crate and for its fuzz targets.
//!
//! The text is that of `tests/parity` in the Python tests, where it is described.
#![allow(dead_code, reason = "each target uses a part of it")]

pub mod choices;
pub mod player;
pub mod script;
pub mod wording;
pub mod world;

pub use player::Player;
pub use script::{Line, Script};

/// Numbers beyond 64 bits and the like never reach the core.
const BY_THE_BINDING: &str = "refused=bad_request";

/// Replay a trace; answers how many calls were made, or the first difference.
pub fn replay(text: &str, check: bool) -> Result<usize, String> {
    let script = Script::parse(text)?;
    let mut player = Player::new(script.config);
    let mut calls = 0;
    for line in &script.lines {
        if matches!(line, Line::Call(call) if call.expected.starts_with(BY_THE_BINDING)) {
            continue;
        }
        let Some(answer) = player.take(line) else { continue };
        calls += 1;
        let Line::Call(call) = line else { unreachable!("only calls are answered") };
        if answer != call.expected {
            return Err(format!("{call}\n  recorded {}\n  answered {answer}", call.expected));
        }
        if check {
            player.core.check().map_err(|broken| format!("{call}\n  broken {broken}"))?;
        }
    }
    Ok(calls)
}
