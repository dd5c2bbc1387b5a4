//! Recorded traces, replayed without Python: every answer and every state as the reference core gave them.
//!
//! `AGENTCACHE_TRACE=file` replays another trace instead of the corpus, with a check after every call.

mod trace;

use std::path::{Path, PathBuf};

use trace::replay;

fn corpus() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let files = std::fs::read_dir(&folder).expect("the corpus is beside this test");
    let mut found: Vec<PathBuf> = files.map(|file| file.expect("a readable folder").path()).collect();
    found.retain(|path| path.extension().is_some_and(|ending| ending == "trace"));
    found.sort();
    found
}

#[test]
fn every_recorded_trace_is_answered_as_recorded() {
    let asked = std::env::var("AGENTCACHE_TRACE").map(PathBuf::from);
    let check = asked.is_ok();
    let traces = asked.map_or_else(|_| corpus(), |path| vec![path]);
    assert!(!traces.is_empty(), "no trace in the corpus");
    for path in traces {
        let text = std::fs::read_to_string(&path).expect("a readable trace");
        let calls =
            replay(&text, check).unwrap_or_else(|difference| panic!("{}: {difference}", path.display()));
        assert!(check || calls > 30, "{}: only {calls} calls", path.display());
    }
}

#[test]
fn a_trace_with_a_wrong_answer_is_refused() {
    let path = corpus().into_iter().next().expect("a corpus");
    let text = std::fs::read_to_string(path).expect("a readable trace");
    let wrong = text.replacen("device=0@0", "device=1@0", 1);
    assert!(replay(&wrong, false).is_err_and(|difference| difference.contains("device=1@0")));
}

/// Histories from bytes that nothing guides; the fuzz targets (`agentcache/_rust/fuzz`) go on from here.
#[test]
fn any_bytes_make_a_history_that_keeps_every_promise() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for length in (40..400).cycle().take(400) {
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .take(length)
        .collect();
        trace::world::live(&bytes);
    }
}
