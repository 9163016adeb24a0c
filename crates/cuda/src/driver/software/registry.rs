//! The software drivers of the process, and handles that name one of them.
//!
//! A handle is a number in the form of a pointer: kind, driver, and a number among the driver's things of that kind. Numbers of
//! drivers and things are not given again, so a handle of what is gone stays unknown.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use remat_cuda_sim::Device;

use super::errors::{Failure, INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, Outcome, UNKNOWN};
use super::pinned::Block;
use crate::driver::table::Raw;

/// Drivers that can live in a process at once.
pub(super) const SLOTS: usize = 64;
/// Bits of a device's number that say which one of its driver it is.
pub(super) const ORDINAL_BITS: u32 = 6;
/// Devices of a driver.
pub(super) const MOST_DEVICES: usize = 1 << ORDINAL_BITS;
/// Bits of a driver's number. They fit beside an ordinal into a `CUdevice`, which is not negative.
const DRIVER_BITS: u32 = 24;

/// The devices of a driver, and what the host has of them.
pub(super) struct State {
    pub(super) device: Device,
    /// How often the context of each device is retained.
    pub(super) contexts: Vec<usize>,
    /// Pinned memory by its address.
    pub(super) pinned: BTreeMap<u64, Arc<Block>>,
}

impl State {
    pub(super) fn new(device: Device, devices: usize) -> Self {
        State { device, contexts: vec![0; devices], pinned: BTreeMap::new() }
    }
}

struct Registry {
    drivers: BTreeMap<u32, Arc<Mutex<State>>>,
    slots: [Option<u32>; SLOTS],
    /// Drivers that were made.
    made: u32,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry::new());

impl Registry {
    const fn new() -> Self {
        Registry { drivers: BTreeMap::new(), slots: [None; SLOTS], made: 0 }
    }

    /// Adds a driver: its number and its slot. `None` if all slots are taken.
    fn add(&mut self, state: State) -> Option<(u32, usize)> {
        let slot = self.slots.iter().position(Option::is_none)?;
        let driver = self.made + 1;
        if driver >> DRIVER_BITS != 0 {
            return None;
        }
        self.made = driver;
        self.slots[slot] = Some(driver);
        self.drivers.insert(driver, Arc::new(Mutex::new(state)));
        Some((driver, slot))
    }

    fn remove(&mut self, driver: u32) -> Option<Arc<Mutex<State>>> {
        self.slots.iter_mut().filter(|s| **s == Some(driver)).for_each(|s| *s = None);
        self.drivers.remove(&driver)
    }
}

/// No call runs under this lock, so that what a panic leaves is whole.
fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A driver's place in the registry, which it leaves when this is dropped.
pub(super) struct Registration(u32);

impl Registration {
    /// A new driver of these devices, and its slot. `None` if all slots are taken.
    pub(super) fn of(state: State) -> Option<(Registration, usize)> {
        registry().add(state).map(|(driver, slot)| (Registration(driver), slot))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // what is dropped with the devices may take time, and the lock is free by then
        let state = registry().remove(self.0);
        drop(state);
    }
}

/// The driver in a slot.
pub(super) fn driver_in(slot: usize) -> Option<u32> {
    registry().slots[slot]
}

/// Works on a driver's devices. Errors: there is no such driver; a call on it has panicked.
pub(super) fn with<T>(driver: u32, f: impl FnOnce(&mut State) -> Outcome<T>) -> Outcome<T> {
    let state = registry().drivers.get(&driver).map(Arc::clone);
    let Some(state) = state else { return Err(Failure::new(INVALID_CONTEXT, "the driver is gone")) };
    let mut state = state.lock().map_err(|_| Failure::new(UNKNOWN, "an earlier call on this driver has panicked"))?;
    f(&mut state)
}

/// The number of a device.
pub(super) fn device_number(driver: u32, ordinal: usize) -> c_int {
    (driver << ORDINAL_BITS) as c_int | ordinal as c_int
}

/// Works on the device of a number, with its ordinal. Errors: there is none.
pub(super) fn with_device<T>(device: c_int, f: impl FnOnce(&mut State, usize) -> Outcome<T>) -> Outcome<T> {
    let unknown = || Failure::new(INVALID_DEVICE, format!("device {device} does not exist"));
    let number = u32::try_from(device).map_err(|_| unknown())?;
    let ordinal = number as usize % MOST_DEVICES;
    with(number >> ORDINAL_BITS, |state| match ordinal < state.contexts.len() {
        true => f(state, ordinal),
        false => Err(unknown()),
    })
}

/// The kind of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Context = 1,
    Stream,
    Event,
    Module,
    Function,
    Graph,
    Run,
    Memory,
}

/// Where kind and driver begin in a handle.
const KIND_AT: u32 = 56;
const DRIVER_AT: u32 = 32;

/// The handle of a thing, as a number.
pub(super) fn word(kind: Kind, driver: u32, number: u32) -> u64 {
    (kind as u64) << KIND_AT | u64::from(driver) << DRIVER_AT | u64::from(number)
}

/// The handle of a thing.
pub(super) fn handle(kind: Kind, driver: u32, number: u32) -> Raw {
    std::ptr::without_provenance_mut(word(kind, driver, number) as usize)
}

/// The driver and the number in a handle. Errors: it is not of this kind.
pub(super) fn parts(kind: Kind, handle: u64) -> Outcome<(u32, u32)> {
    if handle >> KIND_AT != kind as u64 {
        return Err(Failure::new(INVALID_HANDLE, format!("{handle:#x} is no {kind:?} of a software driver")));
    }
    Ok(((handle >> DRIVER_AT) as u32 & ((1 << DRIVER_BITS) - 1), handle as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use remat_cuda_sim::DeviceOptions;

    #[test]
    fn handles_keep_kind_driver_and_number() {
        let raw = handle(Kind::Event, (1 << DRIVER_BITS) - 1, u32::MAX);
        assert_eq!(parts(Kind::Event, raw.addr() as u64).expect("an event"), ((1 << DRIVER_BITS) - 1, u32::MAX));
        assert_eq!(parts(Kind::Stream, raw.addr() as u64).expect_err("no stream").status, INVALID_HANDLE);
        assert!(device_number((1 << DRIVER_BITS) - 1, MOST_DEVICES - 1) > 0);
    }

    #[test]
    fn numbers_of_drivers_are_not_given_again_and_slots_are() {
        let state = || State::new(Device::new(DeviceOptions::default()), 1);
        let mut registry = Registry::new();
        let all: Vec<(u32, usize)> = (0..SLOTS).map(|_| registry.add(state()).expect("a slot is free")).collect();
        assert!(registry.add(state()).is_none());
        let (number, slot) = all[3];
        assert!(registry.remove(number).is_some() && registry.remove(number).is_none());
        let (next, again) = registry.add(state()).expect("a slot is free");
        assert!(again == slot && all.iter().all(|(n, _)| *n != next));
    }

    #[test]
    fn a_driver_that_is_dropped_is_gone() {
        let (registration, slot) =
            Registration::of(State::new(Device::new(DeviceOptions::default()), 1)).expect("free");
        let number = registration.0;
        assert_eq!(driver_in(slot), Some(number));
        drop(registration);
        assert_eq!(with(number, |_| Ok(())).expect_err("gone").status, INVALID_CONTEXT);
    }
}
