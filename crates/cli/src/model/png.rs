//! Pictures as tensors.

use remat::types::{DType, Error, ErrorKind, HostTensor, Result, vec_for};

use super::value::cast;

/// More points than any network takes, and far fewer than fill a machine's memory.
const MOST_POINTS: u64 = 1 << 28;

fn wrong(e: impl ToString) -> Error {
    Error::new(ErrorKind::Format, e.to_string())
}

/// The picture as `[1, channels, height, width]`: grey or red, green and blue, without transparency. Numbers of 0 to 1 for float
/// types, 0 to 255 for others. Errors: Format; Io without memory.
pub(super) fn tensor(bytes: &[u8], dtype: DType) -> Result<HostTensor> {
    let mut decoder = png::Decoder::new(std::io::Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(wrong)?;
    let (width, height) = (reader.info().width as usize, reader.info().height as usize);
    if width as u64 * height as u64 > MOST_POINTS {
        return Err(wrong(format!("{width}x{height} points, and at most {MOST_POINTS} are read")));
    }
    let size = reader.output_buffer_size().ok_or_else(|| wrong("a picture that is too large"))?;
    let mut points: Vec<u8> = vec_for(size)?;
    points.resize(size, 0);
    let info = reader.next_frame(&mut points).map_err(wrong)?;
    let samples = info.color_type.samples();
    // with transparency comes one more than there are colours
    let colours = if samples > 2 { 3 } else { 1 };
    let mut planes: Vec<f32> = vec_for(colours * width * height)?;
    let scale = if dtype.is_float() { 1.0 / 255.0 } else { 1.0 };
    for c in 0..colours {
        let rows = points.chunks_exact(info.line_size.max(1)).take(height);
        planes.extend(
            rows.flat_map(|row| row[..width * samples].iter().skip(c).step_by(samples)).map(|p| f32::from(*p) * scale),
        );
    }
    cast(&HostTensor::from_slice(&planes, [1, colours, height, width])?, dtype)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(color: png::ColorType, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 2, 1);
        encoder.set_color(color);
        let mut writer = encoder.write_header().expect("a header");
        writer.write_image_data(data).expect("all points");
        writer.finish().expect("the end");
        bytes
    }

    #[test]
    fn colours_become_planes() {
        let rgb = picture(png::ColorType::Rgb, &[255, 0, 51, 0, 255, 102]);
        let t = tensor(&rgb, DType::U8).expect("a picture");
        assert_eq!(t.shape().dims(), [1, 3, 1, 2]);
        assert_eq!(t.as_slice::<u8>().expect("u8"), [255, 0, 0, 255, 51, 102]);
        let t = tensor(&rgb, DType::F32).expect("a picture");
        assert!(t.as_slice::<f32>().expect("f32").iter().all(|v| (0.0..=1.0).contains(v)));
        let with_alpha = picture(png::ColorType::Rgba, &[255, 0, 51, 9, 0, 255, 102, 9]);
        assert_eq!(tensor(&with_alpha, DType::U8).expect("a picture").bytes(), [255, 0, 0, 255, 51, 102]);
        let grey = picture(png::ColorType::Grayscale, &[7, 9]);
        assert_eq!(tensor(&grey, DType::U8).expect("a picture").shape().dims(), [1, 1, 1, 2]);
    }

    #[test]
    fn what_is_no_picture_is_an_error() {
        let whole = picture(png::ColorType::Rgb, &[255, 0, 51, 0, 255, 102]);
        for len in 0..whole.len() - 12 {
            assert!(tensor(&whole[..len], DType::U8).is_err(), "cut at {len}");
        }
    }
}
