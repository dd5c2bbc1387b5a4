//! Gathers runs of one path into pieces, one per contiguous run and component.

use crate::arena::FULL;
use crate::values::Piece;

/// Pieces of a path, FULL first, then components in the order in which a walk page by page would meet them.
#[derive(Debug, Default)]
pub struct Pieces {
    runs: Vec<(Turn, Vec<Piece>)>,
}

/// When a component is met: the phase of the call, the end of its first page, then its turn at that page.
type Turn = (usize, u32, usize);

impl Pieces {
    /// Runs of one component must come shallowest first. `first_end` is the end of the run's first page.
    pub fn add(&mut self, component: usize, range: (u32, u32), slots: &[i32], turn: Turn) {
        let (start, end) = (i64::from(range.0), i64::from(range.1));
        let piece = Piece { component, start, end, slots: slots.to_vec() };
        let Some((_, runs)) = self.runs.iter_mut().find(|(_, runs)| runs[0].component == component) else {
            self.runs.push((turn, vec![piece]));
            return;
        };
        let count = runs.len();
        let last = &mut runs[count - 1];
        if last.end == start && start < end && last.start < last.end {
            last.end = end;
            last.slots.extend_from_slice(slots);
        } else {
            runs.push(piece);
        }
    }

    pub fn build(mut self) -> Vec<Piece> {
        self.runs.sort_by_key(|(turn, runs)| (runs[0].component != FULL, *turn));
        self.runs.into_iter().flat_map(|(_, runs)| runs).collect()
    }
}
