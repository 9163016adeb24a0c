//! An archive as `torch.save` writes it, around any pickle.

/// The bytes of an archive with these members, stored.
pub fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in members {
        let at = (bytes.len() as u32).to_le_bytes();
        let size = (data.len() as u32).to_le_bytes();
        // versions, flags and method, then time and date
        let common = [&[0; 4][..], &[0; 4], &crc32fast::hash(data).to_le_bytes(), &size, &size].concat();
        let lengths = [&(name.len() as u16).to_le_bytes()[..], &[0; 2]].concat();
        bytes.extend([b"PK\x03\x04", &[20, 0][..], &common, &lengths, name.as_bytes(), data].concat());
        let places = [&[0; 2][..], &[0; 2], &[0; 2], &[0; 4], &at].concat();
        directory.extend([b"PK\x01\x02", &[20, 0, 20, 0][..], &common, &lengths, &places, name.as_bytes()].concat());
    }
    let count = (members.len() as u16).to_le_bytes();
    let (size, at) = ((directory.len() as u32).to_le_bytes(), (bytes.len() as u32).to_le_bytes());
    bytes.extend([&directory[..], b"PK\x05\x06", &[0; 4], &count, &count, &size, &at, &[0; 2]].concat());
    bytes
}
