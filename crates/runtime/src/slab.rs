//! A table with typed keys that are reused after removal.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// A key of a [`Slab`] of `T`.
pub(crate) struct Key<T>(u32, PhantomData<fn() -> T>);

impl<T> Key<T> {
    /// The key as a number, for an arena's owner tag.
    #[inline]
    pub(crate) fn raw(self) -> u32 {
        self.0
    }

    /// The key back from a number that [`Key::raw`] gave.
    #[inline]
    pub(crate) fn from_raw(raw: u32) -> Self {
        Key(raw, PhantomData)
    }
}
impl<T> Clone for Key<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Key<T> {}
impl<T> PartialEq for Key<T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl<T> Eq for Key<T> {}
impl<T> std::hash::Hash for Key<T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
impl<T> std::fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// See the module's note. Indexing with a removed key panics: it is a bug of this crate.
pub(crate) struct Slab<T> {
    entries: Vec<Option<T>>,
    vacant: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Slab { entries: Vec::new(), vacant: Vec::new() }
    }

    pub(crate) fn insert(&mut self, value: T) -> Key<T> {
        match self.vacant.pop() {
            Some(i) => {
                self.entries[i as usize] = Some(value);
                Key(i, PhantomData)
            }
            None => {
                self.entries.push(Some(value));
                Key(self.entries.len() as u32 - 1, PhantomData)
            }
        }
    }

    /// Drops an entry in place.
    pub(crate) fn remove(&mut self, key: Key<T>) {
        if let Some(entry @ Some(_)) = self.entries.get_mut(key.0 as usize) {
            *entry = None;
            self.vacant.push(key.0);
        }
    }

    /// A copy in which keys name the same entries. New keys will be the same, too.
    pub(crate) fn map(&self, copy: impl Fn(&T) -> T) -> Slab<T> {
        Slab { entries: self.entries.iter().map(|e| e.as_ref().map(&copy)).collect(), vacant: self.vacant.clone() }
    }

    #[inline]
    pub(crate) fn get(&self, key: Key<T>) -> Option<&T> {
        self.entries.get(key.0 as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, key: Key<T>) -> Option<&mut T> {
        self.entries.get_mut(key.0 as usize)?.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key<T>, &T)> {
        self.entries.iter().enumerate().filter_map(|(i, e)| Some((Key(i as u32, PhantomData), e.as_ref()?)))
    }

    /// All keys are below this number.
    pub(crate) fn slots(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.vacant.len()
    }
}

impl<T> Index<Key<T>> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, key: Key<T>) -> &T {
        self.entries[key.0 as usize].as_ref().expect("a key in use names an entry")
    }
}
impl<T> IndexMut<Key<T>> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, key: Key<T>) -> &mut T {
        self.entries[key.0 as usize].as_mut().expect("a key in use names an entry")
    }
}
