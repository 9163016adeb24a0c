//! Pictures as tensors.

use remat::types::{DType, Error, ErrorKind, HostTensor, Result, vec_for};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::value::cast;

/// More points than any network takes, and far fewer than fill a machine's memory.
const MOST_POINTS: u64 = 1 << 28;

fn wrong(e: impl ToString) -> Error {
    Error::new(ErrorKind::Format, e.to_string())
}

/// A picture of 8 bits a colour: grey or red, green and blue, without transparency.
pub(super) struct Picture {
    pub(super) height: usize,
    pub(super) width: usize,
    /// 1 or 3.
    pub(super) colours: usize,
    /// By row, by place, by colour.
    pub(super) points: Vec<u8>,
}

fn checked(width: usize, height: usize) -> Result<()> {
    match width as u64 * height as u64 {
        0 => Err(wrong("a picture without points")),
        n if n > MOST_POINTS => Err(wrong(format!("{width}x{height} points, and at most {MOST_POINTS} are read"))),
        _ => Ok(()),
    }
}

impl Picture {
    /// A PNG file's. Errors: Format; Io without memory.
    pub(super) fn png(bytes: &[u8]) -> Result<Picture> {
        let mut decoder = png::Decoder::new(std::io::Cursor::new(bytes));
        decoder.set_transformations(png::Transformations::normalize_to_color8());
        let mut reader = decoder.read_info().map_err(wrong)?;
        let (width, height) = (reader.info().width as usize, reader.info().height as usize);
        checked(width, height)?;
        let size = reader.output_buffer_size().ok_or_else(|| wrong("a picture that is too large"))?;
        let mut all: Vec<u8> = vec_for(size)?;
        all.resize(size, 0);
        let info = reader.next_frame(&mut all).map_err(wrong)?;
        let samples = info.color_type.samples();
        // with transparency comes one more than there are colours
        let colours = if samples > 2 { 3 } else { 1 };
        let mut points: Vec<u8> = vec_for(colours * width * height)?;
        for row in all.chunks_exact(info.line_size.max(1)).take(height) {
            row[..width * samples].chunks_exact(samples).for_each(|p| points.extend_from_slice(&p[..colours]));
        }
        Ok(Picture { height, width, colours, points })
    }

    /// A JPEG file's, in the order of its points: the entry for the camera's orientation is ignored. Errors: Format.
    pub(super) fn jpeg(bytes: &[u8]) -> Result<Picture> {
        // a file that ends early is an error, not a picture that is grey below
        let options = DecoderOptions::default().set_strict_mode(true);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
        decoder.decode_headers().map_err(wrong)?;
        let (width, height) = decoder.dimensions().ok_or_else(|| wrong("a picture without a size"))?;
        checked(width, height)?;
        let is_grey = decoder.input_colorspace() == Some(ColorSpace::Luma);
        let wanted = if is_grey { ColorSpace::Luma } else { ColorSpace::RGB };
        decoder.set_options(options.jpeg_set_out_colorspace(wanted));
        let points = decoder.decode().map_err(wrong)?;
        let colours = if is_grey { 1 } else { 3 };
        if points.len() != colours * width * height {
            return Err(wrong(format!("{} bytes for {width}x{height} points of {colours} colours", points.len())));
        }
        Ok(Picture { height, width, colours, points })
    }

    /// The picture as `[1, channels, height, width]`: numbers of 0 to 1 for float types, 0 to 255 for others. Errors: Io without memory.
    pub(super) fn tensor(&self, dtype: DType) -> Result<HostTensor> {
        let scale = if dtype.is_float() { 1.0 / 255.0 } else { 1.0 };
        let mut planes: Vec<f32> = vec_for(self.points.len())?;
        for c in 0..self.colours {
            planes.extend(self.points.iter().skip(c).step_by(self.colours).map(|p| f32::from(*p) * scale));
        }
        cast(&HostTensor::from_slice(&planes, [1, self.colours, self.height, self.width])?, dtype)
    }
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

    fn tensor(bytes: &[u8], dtype: DType) -> Result<HostTensor> {
        Picture::png(bytes)?.tensor(dtype)
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

    /// Of 16x16 points that are one colour, which Pillow wrote: `Image.new("RGB", (16, 16), (200, 40, 90)).save("x.jpg", quality=95)`.
    const JPEG: &[u8] = include_bytes!("picture/plain.jpg");

    #[test]
    fn a_jpeg_file_is_a_picture_too() {
        let p = Picture::jpeg(JPEG).expect("a picture");
        assert_eq!((p.height, p.width, p.colours, p.points.len()), (16, 16, 3, 768));
        for point in p.points.chunks(3) {
            let near = point.iter().zip([200u8, 40, 90]).all(|(a, b)| a.abs_diff(b) <= 2);
            assert!(near, "{point:?}");
        }
    }

    #[test]
    fn what_is_no_picture_is_an_error() {
        let whole = picture(png::ColorType::Rgb, &[255, 0, 51, 0, 255, 102]);
        for len in 0..whole.len() - 12 {
            assert!(tensor(&whole[..len], DType::U8).is_err(), "cut at {len}");
        }
        for len in 0..JPEG.len() / 2 {
            assert!(Picture::jpeg(&JPEG[..len]).is_err(), "cut at {len}");
        }
        assert!(Picture::jpeg(&whole).is_err() && Picture::png(JPEG).is_err());
    }
}
