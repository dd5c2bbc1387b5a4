//! Figures, as lines or as the JSON of `agentcache bench tree`.

use std::fmt::Write;

/// Where a figure was taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place<'a> {
    pub components: &'a str,
    pub page: usize,
    pub tokens: usize,
    pub leaves: Option<usize>,
    pub referenced: bool,
    pub shape: &'a str,
}

#[derive(Default)]
pub struct Rows {
    lines: Vec<String>,
    objects: Vec<String>,
}

impl Rows {
    /// Best and median of many calls, in nanoseconds.
    pub fn add(&mut self, op: &str, place: Place<'_>, mut nanos: Vec<f64>) {
        nanos.sort_by(f64::total_cmp);
        self.figure(op, place, [nanos[0], nanos[nanos.len() / 2]], nanos.len());
    }

    pub fn figure(&mut self, op: &str, place: Place<'_>, [best, median]: [f64; 2], n: usize) {
        let Place { components, page, tokens, leaves, referenced, shape } = place;
        let [best, median] = [best / 1e3, median / 1e3];
        let sessions = if referenced { "referenced" } else { "unreferenced" };
        let many = leaves.map_or("null".to_owned(), |leaves| leaves.to_string());
        let mut object = String::new();
        for (name, value) in
            [("op", op), ("components", components), ("shape", shape), ("sessions", sessions)]
        {
            let _ = write!(object, "\"{name}\": \"{value}\", ");
        }
        let _ = write!(
            object,
            "\"core\": \"native-rust\", \"unit\": \"us\", \"page\": {page}, \"tokens\": {tokens}, "
        );
        let _ = write!(
            object,
            "\"leaves\": {many}, \"best_us\": {best:.3}, \"median_us\": {median:.3}, \"n\": {n}"
        );
        self.objects.push(format!("{{{object}}}"));
        self.lines.push(format!(
            "{op:<16} {shape:<6} {components:<18} {page:>3} {tokens:>7} {many:>7} {sessions:<13} {best:>9.2} {median:>9.2} {n:>5}"
        ));
    }

    pub fn print(&self, json: bool) {
        if json {
            println!("{{\"rows\": [{}]}}", self.objects.join(", "));
        } else {
            println!(
                "op, shape, components, page, tokens, leaves, sessions, best and median microseconds, n"
            );
            println!("{}", self.lines.join("\n"));
        }
    }
}
