//! Gathers runs of one path into pieces, one per contiguous run, in spec order.

use crate::values::Piece;

/// Pieces of a path by component.
#[derive(Debug)]
pub struct Pieces {
    runs: Vec<Vec<Piece>>,
}

impl Pieces {
    pub fn new(components: usize) -> Self {
        Pieces { runs: vec![Vec::new(); components] }
    }

    /// Runs of one component must come shallowest first; a state's range is empty.
    pub fn add(&mut self, component: usize, range: (u32, u32), slots: &[i32]) {
        let (start, end) = (i64::from(range.0), i64::from(range.1));
        let runs = &mut self.runs[component];
        match runs.last_mut() {
            Some(last) if last.end == start && start < end => {
                last.end = end;
                last.slots.extend_from_slice(slots);
            }
            _ => runs.push(Piece { component, start, end, slots: slots.to_vec() }),
        }
    }

    pub fn build(self) -> Vec<Piece> {
        self.runs.into_iter().flatten().collect()
    }
}
