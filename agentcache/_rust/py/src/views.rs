//! Looking at the whole: the values of `views.py`.

use std::fmt::Write;

use agentcache_core::{Branch, MarkerView, Outline, PageView, PoolCount, Snapshot, Stats};
use pyo3::prelude::*;
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
        let slots = self.tuple(page.slots, |(component, tier, slot)| {
            let name = self.names.known(self.py, component);
            Ok(PyTuple::new(self.py, [name, self.tier(tier), self.int(slot)])?.into_any())
        })?;
        let counts = |(component, count): (usize, i64)| {
            let name = self.names.known(self.py, component);
            Ok(PyTuple::new(self.py, [name, self.int(count)])?.into_any())
        };
        let (locks, references) = (self.tuple(page.locks, counts)?, self.tuple(page.references, counts)?);
        let namespace = self.hexadecimal(&page.namespace);
        self.records().page.build(self.py, [path, namespace, slots, locks, references])
    }

    fn hexadecimal(&self, bytes: &[u8]) -> Bound<'py, PyAny> {
        let text = bytes.iter().fold(String::with_capacity(64), |mut text, byte| {
            write!(text, "{byte:02x}").expect("a text takes any");
            text
        });
        PyString::new(self.py, &text).into_any()
    }

    pub fn outline(&self, outline: Outline) -> Built<'py> {
        let branches = self.tuple(outline.branches, |branch| self.branch(branch))?;
        self.records().outline.build(self.py, [branches, self.flag(outline.more)])
    }

    fn branch(&self, branch: Branch) -> Built<'py> {
        let resident = self.tuple(branch.resident, |(component, tier, count)| {
            let name = self.names.known(self.py, component);
            Ok(PyTuple::new(self.py, [name, self.tier(tier), self.int(count)])?.into_any())
        })?;
        let fields = [
            self.int(branch.parent),
            self.int(branch.start),
            self.int(branch.end),
            self.hexadecimal(&branch.namespace),
            resident,
            self.int(branch.referenced),
            self.int(branch.running),
            self.int(branch.reusable),
            self.int(branch.markers),
            self.int(branch.used_ns),
        ];
        self.records().branch.build(self.py, fields)
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
