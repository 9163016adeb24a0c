use std::io::Cursor;

use super::*;
use crate::f16;

fn file(dict: &str, data: &[u8]) -> Vec<u8> {
    let mut b = MAGIC.to_vec();
    b.extend([1, 0]);
    b.extend((dict.len() as u16).to_le_bytes());
    b.extend(dict.as_bytes());
    b.extend(data);
    b
}

fn written(t: &HostTensor) -> Vec<u8> {
    let mut b = Vec::new();
    write_npy(t, &mut b).expect("writes");
    b
}

fn dict(descr: &str, fortran: &str, shape: &str) -> String {
    format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n")
}

#[test]
fn what_is_written_is_read_again() {
    let all = [
        HostTensor::from_slice(&[1.5f32, -2.0, f32::INFINITY, 0.0, 1.0, 2.0], [2, 3]).expect("fits"),
        HostTensor::from_slice(&[true, false], [2]).expect("fits"),
        HostTensor::scalar(-7i64),
        HostTensor::from_slice::<u16>(&[], [0, 4]).expect("fits"),
        HostTensor::from_slice(&[f16::from_f32(0.1)], [1, 1, 1]).expect("fits"),
    ];
    for t in &all {
        let b = written(t);
        assert_eq!(read_npy(&b).expect("reads"), *t);
        assert_eq!((b.len() - t.bytes().len()) % HEADER_ALIGN, 0);
    }
    for compress in [false, true] {
        let mut zip = Cursor::new(Vec::new());
        write_npz([("w", &all[0]), ("sub/flag", &all[1])], compress, &mut zip).expect("writes");
        let read = read_npz(zip).expect("reads");
        assert_eq!(read.len(), 2);
        assert_eq!((&read["w"], &read["sub/flag"]), (&all[0], &all[1]));
    }
}

#[test]
fn npyz_reads_what_is_written_and_writes_what_is_read() {
    use npyz::WriterBuilder;
    let t = HostTensor::from_slice(&[1i32, 2, 3, 4, 5, 6], [3, 2]).expect("fits");
    let bytes = written(&t);
    let theirs = npyz::NpyFile::new(&bytes[..]).expect("npyz reads");
    assert_eq!(theirs.shape(), [3, 2]);
    assert_eq!(theirs.into_vec::<i32>().expect("npyz reads"), [1, 2, 3, 4, 5, 6]);
    let mut out = Vec::new();
    let options = npyz::WriteOptions::new().default_dtype().shape(&[3, 2]);
    let mut w = options.writer(&mut out).begin_nd().expect("begins");
    w.extend([1i32, 2, 3, 4, 5, 6]).expect("writes");
    w.finish().expect("ends");
    assert_eq!(read_npy(&out).expect("reads"), t);
}

#[test]
fn fortran_order_and_big_endian_are_undone() {
    // columns first: [[1, 2, 3], [4, 5, 6]]
    let f = file(&dict("<i2", "True", "(2, 3)"), &[1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6, 0]);
    assert_eq!(read_npy(&f).expect("reads").to_vec::<i16>().expect("i16"), [1, 2, 3, 4, 5, 6]);
    let b = file(&dict(">f4", "False", "(1,)"), &1.5f32.to_be_bytes());
    assert_eq!(read_npy(&b).expect("reads").to_vec::<f32>().expect("f32"), [1.5]);
    // another order of fields, double quotes, long integers, no padding
    let odd = file("{\"shape\":(2L,),\"fortran_order\":False,\"descr\":\"|u1\"}", &[7, 8]);
    assert_eq!(read_npy(&odd).expect("reads").to_vec::<u8>().expect("u8"), [7, 8]);
}

#[test]
fn every_truncation_is_an_error_of_kind_format() {
    let t = HostTensor::from_slice(&[1.0f64, 2.0], [2]).expect("fits");
    let b = written(&t);
    for len in 0..b.len() {
        assert_eq!(read_npy(&b[..len]).expect_err("too short").kind(), ErrorKind::Format, "{len} bytes");
    }
    let mut long = b.clone();
    long.push(0);
    assert_eq!(read_npy(&long).expect_err("too long").kind(), ErrorKind::Format);
    let mut zip = Cursor::new(Vec::new());
    write_npz([("a", &t)], true, &mut zip).expect("writes");
    let z = zip.into_inner();
    for len in 0..z.len() {
        assert!(read_npz(Cursor::new(&z[..len])).is_err(), "{len} bytes");
    }
}

#[test]
fn absurd_headers_are_errors_that_name_the_field() {
    let huge = "(18446744073709551615, 18446744073709551615)";
    for (dict, word) in [
        (dict("<f4", "False", huge), "shape"),
        (dict("<f4", "False", "(4611686018427387904, 0)"), "shape"),
        (dict("<f4", "False", "(99999999999999999999999,)"), "shape"),
        (dict("<f4", "False", "(1000000000000,)"), "data begin"),
        (dict("<f4", "False", &format!("({})", "1,".repeat(65))), "shape"),
        (dict("<f4", "False", "(-1,)"), "shape"),
        (dict("<f4", "0", "()"), "fortran_order"),
        (dict("?f4", "False", "()"), "descr"),
        (dict("", "False", "()"), "descr"),
        (dict("é4", "False", "()"), "descr"),
        ("{'descr': '<f4', 'shape': ()}".into(), "fortran_order"),
        ("{'descr': '<f4', 'descr': '<f4'}".into(), "twice"),
        ("{'x': 1}".into(), "`x`"),
        ("{'shape': ".into(), "expected"),
        ("(".repeat(60_000), "expected"),
        (String::new(), "expected"),
    ] {
        let e = read_npy(&file(&dict, &[0; 4])).expect_err("absurd");
        assert!(matches!(e.kind(), ErrorKind::Format | ErrorKind::DType), "{e:?}");
        assert!(e.to_string().contains(word), "{e}: no {word}");
    }
    let mut wide = b"\x93NUMPY\x02\x00".to_vec();
    wide.extend(u32::MAX.to_le_bytes());
    assert!(read_npy(&wide).expect_err("4 GiB of header").to_string().contains("byte 8"));
    assert!(read_npy(b"PK\x03\x04....").expect_err("a zip").to_string().contains("magic"));
    assert!(read_npy(b"\x93NUMPY\x09\x00..").expect_err("version").to_string().contains("9.0"));
}

#[test]
fn foreign_dtypes_are_refused_by_name() {
    for descr in ["<c8", "|O", "<U3", "|S7", "<f16", "<M8[ns]", "|V2"] {
        let e = read_npy(&file(&dict(descr, "False", "()"), &[0; 16])).expect_err("foreign");
        assert_eq!(e.kind(), ErrorKind::DType);
        assert!(e.to_string().contains(descr), "{e}");
    }
    let record = file("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", &[0; 4]);
    assert_eq!(read_npy(&record).expect_err("record").kind(), ErrorKind::DType);
    let bf = HostTensor::scalar(crate::bf16::from_f32(1.0));
    assert_eq!(write_npy(&bf, Vec::new()).expect_err("bf16").kind(), ErrorKind::DType);
    let two = file(&dict("|b1", "False", "(1,)"), &[2]);
    assert_eq!(read_npy(&two).expect_err("a bool of 2").kind(), ErrorKind::Format);
}

#[test]
fn archives_with_foreign_members_are_refused_by_name() {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("notes.txt", zip::write::SimpleFileOptions::default()).expect("starts");
    let e = read_npz(zip.finish().expect("ends")).expect_err("a text");
    assert!(e.kind() == ErrorKind::Format && e.to_string().contains("notes.txt"), "{e}");
}

#[test]
fn an_archive_that_unpacks_to_more_than_the_limit_is_refused_before_it_does() {
    let zeros = HostTensor::zeros(DType::U8, [NPZ_ALWAYS_BYTES as usize + 1]).expect("fits");
    let mut zip = Cursor::new(Vec::new());
    write_npz([("bomb", &zeros)], true, &mut zip).expect("writes");
    assert!(zip.get_ref().len() < 1 << 20, "it is small itself");
    let e = read_npz(zip.clone()).expect_err("more than its limit");
    assert!(e.kind() == ErrorKind::Format && e.message().contains("bomb") && e.message().contains("268435456"), "{e}");
    assert_eq!(read_npz_within(zip, 1 << 30).expect("allowed")["bomb"].elems(), zeros.elems());
    let small = HostTensor::scalar(1u8);
    let mut zip = Cursor::new(Vec::new());
    write_npz([("a", &small), ("b", &small)], true, &mut zip).expect("writes");
    let one = HEADER_ALIGN as u64 * 2 + 1;
    let e = read_npz_within(zip, one + 1).expect_err("the limit is that of all members");
    assert!(e.message().contains("`b.npy`"), "{e}");
}

#[test]
fn a_member_must_be_as_long_as_archive_and_header_say() {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("a.npy", zip::write::SimpleFileOptions::default()).expect("starts");
    // the header promises 256 MiB, and one byte follows
    zip.write_all(&file(&dict("|u1", "False", "(268435456,)"), &[1])).expect("writes");
    let e = read_npz(zip.finish().expect("ends")).expect_err("shorter");
    assert!(e.kind() == ErrorKind::Format && e.message().contains("the archive says"), "{e}");
}

#[test]
fn an_archive_of_many_ends_is_refused_soon() {
    // ends that each name a directory, which is right but for its last member
    const MEMBERS: usize = 5000;
    const ENDS: usize = 12_000;
    let mut file = b"PK\x03\x04".to_vec();
    let at = file.len() as u32;
    let mut member = [0; 47];
    member[..4].copy_from_slice(b"PK\x01\x02");
    member[28] = 1;
    file.extend(member.repeat(MEMBERS));
    for _ in 0..ENDS {
        let count = (MEMBERS as u16 + 1).to_le_bytes();
        let bytes = file.len() as u32 - at;
        file.extend([&b"PK\x05\x06\0\0\0\0"[..], &count, &count].concat());
        file.extend([&bytes.to_le_bytes()[..], &at.to_le_bytes(), &[0; 2]].concat());
    }
    let start = std::time::Instant::now();
    let e = read_npz(Cursor::new(&file)).expect_err("no archive");
    assert!(e.kind() == ErrorKind::Format && e.message().contains("one end after the other"), "{e}");
    // every directory of every end: a minute
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}
