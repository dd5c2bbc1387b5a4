//! Keys, and the numbers that namespaces have in a core.

use std::collections::HashMap;

use agentcache_core::{Key, NamespaceId, PageHash, TreeCore};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arrays::View;
use crate::classes::Classes;
use crate::fault::Fault;

/// More namespace objects than this are not in use at once; who makes new ones for each call pays for their digests.
const REMEMBERED: usize = 1024;

/// How a digest gets its number: `TreeCore::namespace`, or `known` for calls that leave no trace.
pub type Find = fn(&mut TreeCore, PageHash) -> NamespaceId;

/// The number of a namespace that was met before; of another one that no page has.
pub fn known(core: &mut TreeCore, digest: PageHash) -> NamespaceId {
    core.known_namespace(&digest)
}

/// The numbers of namespace objects seen before. They are frozen, and kept alive here, so that an address names one.
#[derive(Default)]
pub struct Spaces(HashMap<usize, (Py<PyAny>, NamespaceId)>);

impl Spaces {
    /// The number of a namespace.
    pub fn number(
        &mut self,
        classes: &Classes,
        core: &mut TreeCore,
        namespace: &Bound<'_, PyAny>,
        find: Find,
    ) -> Result<NamespaceId, Fault> {
        let address = namespace.as_ptr() as usize;
        if let Some((_, number)) = self.0.get(&address) {
            return Ok(*number);
        }
        let digest = namespace.call_method0(intern!(namespace.py(), "digest"))?;
        let digest =
            digest.cast::<PyBytes>().ok().and_then(|bytes| PageHash::try_from(bytes.as_bytes()).ok());
        let number = find(core, digest.ok_or(Fault::BadRequest("a namespace has a digest of 32 bytes"))?);
        if number != NamespaceId::MAX && classes.records.namespace.is_class_of(namespace) {
            if self.0.len() >= REMEMBERED {
                self.0.clear();
            }
            self.0.insert(address, (namespace.clone().unbind(), number));
        }
        Ok(number)
    }
}

/// A core with the namespaces that it has met.
pub struct Tree {
    pub core: TreeCore,
    spaces: Spaces,
}

impl Tree {
    pub fn new(core: TreeCore) -> Self {
        Tree { core, spaces: Spaces::default() }
    }

    pub fn namespace(
        &mut self,
        classes: &Classes,
        namespace: &Bound<'_, PyAny>,
        find: Find,
    ) -> Result<NamespaceId, Fault> {
        self.spaces.number(classes, &mut self.core, namespace, find)
    }

    /// A key, its tokens to be borrowed. Errors: `BAD_REQUEST` for tokens that are no flat int32 array.
    pub fn key(&mut self, classes: &Classes, key: &Bound<'_, PyAny>, find: Find) -> Result<KeyView, Fault> {
        let [tokens, namespace] = classes.records.key.fields(key);
        let namespace = self.namespace(classes, &namespace?, find)?;
        let mut view = View::empty();
        if view.take(&tokens?) {
            return Ok(KeyView { view, namespace });
        }
        Err(Fault::BadRequest("the tokens of a key are int32; make keys with keys.page_key"))
    }
}

/// A key for the time of a call.
pub struct KeyView {
    view: View,
    namespace: NamespaceId,
}

impl KeyView {
    pub fn key(&self) -> Key<'_> {
        Key { tokens: self.view.numbers(), namespace: self.namespace }
    }
}
