//! Looking at the whole: the values of `views.py`.

use std::fmt::Write;

use agentcache_core::{MarkerView, PageView, PoolCount, Snapshot, Stats};
use pyo3::types::{PyString, PyTuple};

use crate::building::{Builder, Built};

impl<'py> Builder<'_, 'py> {
    pub fn snapshot(&self, snapshot: Snapshot) -> Built<'py> {
        let pages = self.tuple(snapshot.pages, |page| self.page(page))?;
        let markers = self.tuple(snapshot.markers, |marker| self.marker(&marker))?;
        let figures = [snapshot.leases, snapshot.jobs, snapshot.epoch].map(|figure| self.int(figure));
        let [leases, jobs, epoch] = figures;
        self.records().snapshot.build(self.py, [pages, markers, leases, jobs, epoch])
    }

    fn page(&self, page: PageView) -> Built<'py> {
        let path = self.tuple(page.path, |token| Ok(self.int(token)))?;
        let namespace = page.namespace.iter().fold(String::with_capacity(64), |mut text, byte| {
            write!(text, "{byte:02x}").expect("a text takes any");
            text
        });
        let slots = self.tuple(page.slots, |(component, tier, slot)| {
            let name = self.names.known(self.py, component);
            Ok(PyTuple::new(self.py, [name, self.tier(tier), self.int(slot)])?.into_any())
        })?;
        let counts = |(component, count): (usize, i64)| {
            let name = self.names.known(self.py, component);
            Ok(PyTuple::new(self.py, [name, self.int(count)])?.into_any())
        };
        let (locks, references) = (self.tuple(page.locks, counts)?, self.tuple(page.references, counts)?);
        let namespace = PyString::new(self.py, &namespace).into_any();
        self.records().page.build(self.py, [path, namespace, slots, locks, references])
    }

    fn marker(&self, marker: &MarkerView) -> Built<'py> {
        let fields = [
            PyString::new(self.py, &marker.session).into_any(),
            self.int(marker.generation),
            self.int(marker.frontier),
            self.int(marker.alternate),
            self.int(marker.start_seq),
            self.int(marker.finish_seq),
            self.flag(marker.left),
        ];
        self.records().marker.build(self.py, fields)
    }

    pub fn stats(&self, stats: Stats) -> Built<'py> {
        let pools = self.tuple(stats.pools, |count| self.count(count))?;
        let figures = [stats.pages, stats.leases, stats.jobs, stats.sessions, stats.markers];
        let [pages, leases, jobs, sessions, markers] = figures.map(|figure| self.int(figure));
        self.records().stats.build(self.py, [pools, pages, leases, jobs, sessions, markers])
    }

    fn count(&self, count: PoolCount) -> Built<'py> {
        let pool = self.names.pool(self.py, count.component, count.tier);
        let [cached, protected, referenced] =
            [count.cached, count.protected, count.referenced].map(|figure| self.int(figure));
        self.records().count.build(self.py, [pool, cached, protected, referenced])
    }
}
