//! The common beginning of all pictures.

/// The beginning of a picture of this size on a white ground, with letters of `font` points; `</svg>` ends it.
pub(crate) fn begin(width: f64, height: f64, font: u32) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"{font}\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    )
}

/// The title, above the picture and `left` from its edge.
pub(crate) fn title(left: f64, text: &str) -> String {
    format!("<text x=\"{left}\" y=\"22\" font-size=\"14\">{}</text>\n", escape(text))
}

/// Text in XML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
