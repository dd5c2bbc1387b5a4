//! One call at a time, and no panic that crosses: what breaks the core ends it.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, Once, TryLockError};

use agentcache_core::Kind;

use crate::fault::Fault;

/// A value that serves one call at a time and none after a panic.
pub struct Serial<T>(Mutex<State<T>>);

struct State<T> {
    value: T,
    broken: Option<String>,
}

impl<T> Serial<T> {
    pub fn new(value: T) -> Self {
        Serial(Mutex::new(State { value, broken: None }))
    }

    /// Serve one call. Busy: `IN_USE`, nothing changed. A panic, now or ever before: `Broken`.
    pub fn run<R>(&self, call: impl FnOnce(&mut T) -> Result<R, Fault>) -> Result<R, Fault> {
        let mut state = match self.0.try_lock() {
            Ok(state) => state,
            Err(TryLockError::WouldBlock) => {
                return Err(Fault::refused(
                    Kind::InUse,
                    "another call of this core is running; call it from one thread",
                ));
            }
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        };
        if let Some(panic) = &state.broken {
            return Err(Fault::Broken(panic.clone()));
        }
        let value = &mut state.value;
        guarded(|| call(value)).unwrap_or_else(|panic| {
            state.broken = Some(panic.clone());
            Err(Fault::Broken(panic))
        })
    }
}

thread_local! {
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// What a call answers, or the words and place of its panic. Nothing is printed: the exception says it.
pub fn guarded<R>(call: impl FnOnce() -> R) -> Result<R, String> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        panic::set_hook(Box::new(|info| LAST_PANIC.with_borrow_mut(|last| *last = info.to_string())));
    });
    panic::catch_unwind(AssertUnwindSafe(call)).map_err(|_| LAST_PANIC.take())
}
