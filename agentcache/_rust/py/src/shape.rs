//! A core's config: the shape of its tree, and what its components are called.

use agentcache_core::{Config, Kind, Rule};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::classes::{Classes, WritePolicy};
use crate::fault::Fault;
use crate::names::Names;
use crate::reading::whole;

type Object<'a, 'py> = &'a Bound<'py, PyAny>;

/// Reads a `CoreConfig`. Errors: `BAD_CONFIG` for what only the reference core can do, and for what none can.
pub fn read_config(object: Object, instance: u32) -> Result<(Config, Names), Fault> {
    let classes = Classes::get(object.py())?;
    let [page, specs, grid, order, base, policy, host_tier, emit_events, max_markers, unclaimed_ns] =
        classes.records.config.fields(object);
    let (mut rules, mut names) = (Vec::new(), Vec::new());
    for spec in specs?.try_iter()? {
        let [name, rule, ..] = classes.records.spec.fields(&spec?);
        names.push(name?.cast_into::<PyString>().map_err(PyErr::from)?);
        rules.push(read_rule(classes, &rule?)?);
    }
    let (page_tokens, grid_tokens) = (tokens(&page?)?, tokens(&grid?)?);
    if page_tokens == 0 || rules.first() != Some(&Rule::Path) {
        return Err(bad("a page has a token at least, and the first component is FULL, with the Path rule"));
    }
    if rules.len() > 64 {
        return Err(bad("the native core keeps at most 64 components; core=\"reference\" any number"));
    }
    let texts = names.iter().map(|name| name.to_str().map(str::to_owned)).collect::<PyResult<_>>()?;
    let config = Config {
        page_tokens,
        grid_tokens: if grid_tokens == 0 { page_tokens } else { grid_tokens },
        rules,
        names: texts,
        order: classes.enums.orders.value(&order?).ok_or(bad("an eviction order is one of `Order`"))?,
        base: classes
            .enums
            .bases
            .value(&base?)
            .ok_or(bad("a base of the session order is one of `OrderBase`"))?,
        write_back: classes.enums.policies.value(&policy?) == Some(WritePolicy::Back),
        host_tier: host_tier?.is_truthy()?,
        emit_events: emit_events?.is_truthy()?,
        max_markers: usize::try_from(whole(&max_markers?)?).unwrap_or(0),
        unclaimed_ns: whole(&unclaimed_ns?)?,
        instance,
    };
    Ok((config, Names::new(object.py(), &names)?))
}

fn read_rule(classes: &Classes, rule: Object) -> Result<Rule, Fault> {
    let records = &classes.records;
    if records.path.is_class_of(rule) {
        Ok(Rule::Path)
    } else if records.window.is_class_of(rule) {
        Ok(Rule::Window { tokens: tokens(&records.window.field(rule, 0)?)? })
    } else if records.checkpoint.is_class_of(rule) {
        Ok(Rule::Checkpoint { grid_tokens: tokens(&records.checkpoint.field(rule, 0)?)? })
    } else {
        Err(bad("the native core knows Path, Window and Checkpoint; core=\"reference\" takes any rule"))
    }
}

/// A count of tokens as the core keeps it.
fn tokens(object: Object) -> Result<u32, Fault> {
    u32::try_from(whole(object)?).map_err(|_| bad("counts of tokens lie in [0, 2^32)"))
}

fn bad(message: &'static str) -> Fault {
    Fault::refused(Kind::BadConfig, message)
}
