//! Encrypted tensors: XChaCha20-Poly1305 (RFC 8439, with the nonces of draft-irtf-cfrg-xchacha-03), each tensor by itself.
//!
//! A tensor is stored as bytes: a random nonce, the encrypted elements, the tag. What is authenticated with it is its name and all
//! text of the file, so a tensor cannot be put under another name, and the graph cannot be changed. The graph is not secret.

use std::collections::BTreeMap;

use chacha20poly1305::aead::{AeadCore, AeadInPlace, KeyInit, OsRng};
use chacha20poly1305::{Tag, XChaCha20Poly1305, XNonce};
use remat_types::{DType, Error, ErrorKind, Fact, HostTensor, Result};

use super::bad;

/// The cipher, as the metadata names it.
pub(super) const NAME: &str = "XChaCha20-Poly1305";
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;

/// The key of encrypted files: 32 bytes that nobody can guess.
#[derive(Clone)]
pub struct Key([u8; Key::BYTES]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// Bytes of a key.
    pub const BYTES: usize = 32;

    /// A key of these bytes.
    pub fn new(bytes: [u8; Key::BYTES]) -> Key {
        Key(bytes)
    }

    /// The key that a file holds: its 32 bytes, or 64 hexadecimal digits. Errors (Value): anything else.
    pub fn from_file_bytes(bytes: &[u8]) -> Result<Key> {
        if let Ok(own) = bytes.try_into() {
            return Ok(Key(own));
        }
        let hex = std::str::from_utf8(bytes).ok().map(str::trim).filter(|t| t.len() == 2 * Key::BYTES);
        let digits = hex.filter(|t| t.bytes().all(|b| b.is_ascii_hexdigit()));
        let digits = digits.ok_or_else(|| {
            let text = "a key is 32 bytes, or 64 hexadecimal digits; `head -c 32 /dev/urandom` makes one";
            Error::new(ErrorKind::Value, text)
        })?;
        let mut own = [0; Key::BYTES];
        for (byte, pair) in own.iter_mut().zip(digits.as_bytes().chunks(2)) {
            let digit = |c: u8| char::from(c).to_digit(16).unwrap_or(0) as u8;
            *byte = digit(pair[0]) << 4 | digit(pair[1]);
        }
        Ok(Key(own))
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(&self.0.into())
    }
}

/// The text of a file as bytes that no other text has.
fn authenticated(text: &BTreeMap<String, String>) -> Vec<u8> {
    let mut all = Vec::new();
    for part in text.iter().flat_map(|(k, v)| [k, v]) {
        all.extend_from_slice(&(part.len() as u64).to_le_bytes());
        all.extend_from_slice(part.as_bytes());
    }
    all
}

/// These tensors, encrypted, for a file with this text. Errors: Io.
pub(super) fn seal(
    tensors: BTreeMap<String, HostTensor>,
    text: &BTreeMap<String, String>,
    key: &Key,
) -> Result<BTreeMap<String, HostTensor>> {
    let (cipher, with) = (key.cipher(), authenticated(text));
    let one = |(name, data): (String, HostTensor)| {
        let nonce = XChaCha20Poly1305::generate_nonce(&mut OsRng);
        let n = data.bytes().len();
        let mut stored = HostTensor::zeros(DType::U8, [NONCE_BYTES + n + TAG_BYTES])?;
        let bytes = stored.try_bytes_mut()?;
        bytes[..NONCE_BYTES].copy_from_slice(&nonce);
        bytes[NONCE_BYTES..NONCE_BYTES + n].copy_from_slice(data.bytes());
        let with = [&with[..], name.as_bytes()].concat();
        let too_large = |_| bad(format!("tensor `{name}` is more than the cipher takes"));
        let elements = &mut bytes[NONCE_BYTES..NONCE_BYTES + n];
        let tag = cipher.encrypt_in_place_detached(&nonce, &with, elements).map_err(too_large)?;
        bytes[NONCE_BYTES + n..].copy_from_slice(&tag);
        Ok((name, stored))
    };
    tensors.into_iter().map(one).collect()
}

/// A file whose tensors are encrypted.
pub(super) struct Sealed {
    cipher: XChaCha20Poly1305,
    with: Vec<u8>,
}

impl Sealed {
    /// A file with this cipher and text. Errors (Format): another cipher.
    pub(super) fn new(name: &str, text: &BTreeMap<String, String>, key: &Key) -> Result<Sealed> {
        if name != NAME {
            return Err(bad(format!("tensors that are encrypted by `{name}`; {NAME} is known")));
        }
        Ok(Sealed { cipher: key.cipher(), with: authenticated(text) })
    }

    /// The elements of a tensor of this type. Errors: Format for bytes of another length; Value for another key, or a file that was
    /// changed.
    pub(super) fn open(&self, name: &str, stored: &HostTensor, fact: &Fact) -> Result<HostTensor> {
        let n = fact.shape.checked_elems()? * fact.dtype.size_bytes();
        let bytes = stored.bytes();
        if Some(bytes.len()) != n.checked_add(NONCE_BYTES + TAG_BYTES) {
            return Err(bad(format!("tensor `{name}`: {} encrypted bytes for {n}", bytes.len())));
        }
        let (nonce, rest) = bytes.split_at(NONCE_BYTES);
        let (elements, tag) = rest.split_at(n);
        let mut own = elements.to_vec();
        let with = [&self.with[..], name.as_bytes()].concat();
        let opened =
            self.cipher.decrypt_in_place_detached(XNonce::from_slice(nonce), &with, &mut own, Tag::from_slice(tag));
        opened.map_err(|_| {
            Error::new(ErrorKind::Value, format!("tensor `{name}`: another key, or the file was changed"))
        })?;
        HostTensor::from_bytes(fact.dtype, fact.shape.clone(), &own)
    }
}
