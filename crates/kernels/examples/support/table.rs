//! A table that its command puts into a document.

/// With `--write FILE` among the arguments, replaces what lies between the marks in FILE.
///
/// # Panics
/// If there is no such file, or the marks are not in it.
pub(crate) fn write(marks: [&str; 2], table: &str) {
    let args: Vec<String> = std::env::args().collect();
    let Some(at) = args.iter().position(|a| a == "--write") else { return };
    let file = args.get(at + 1).expect("--write FILE");
    let text = std::fs::read_to_string(file).expect("the file is there");
    let [head, tail] = marks.map(|m| text.find(m).expect("the file has the markers"));
    let text = format!("{}{}\n{table}{}", &text[..head], marks[0], &text[tail..]);
    std::fs::write(file, text).expect("the file can be written");
}
