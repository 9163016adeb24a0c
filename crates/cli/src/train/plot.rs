//! The loss curve as SVG.

use crate::svg;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 44.0;
/// Lines of the grid on each axis.
const GRID: usize = 5;
/// Points of a line; more could not be seen.
const POINTS_MAX: usize = 1000;
/// The mean is over this share of the steps.
const SMOOTHED: usize = 40;

/// The losses of steps from `first` on, and their mean over the steps before each.
pub(super) fn losses(title: &str, first: u64, losses: &[f32]) -> String {
    let finite = || losses.iter().copied().filter(|l| l.is_finite()).map(f64::from);
    let (low, high) = (finite().fold(0.0, f64::min), finite().fold(low_end(losses), f64::max));
    let (from, to) = (first as f64, (first + losses.len().max(2) as u64 - 1) as f64);
    let x = |v: f64| LEFT + (v - from) / (to - from) * (WIDTH - RIGHT - LEFT);
    let y = |v: f64| HEIGHT - BOTTOM - (v - low) / (high - low) * (HEIGHT - BOTTOM - TOP);
    let mut svg = svg::begin(WIDTH, HEIGHT, 12) + &svg::title(LEFT, title);
    for i in 0..=GRID {
        let part = i as f64 / GRID as f64;
        let (vx, vy) = (from + part * (to - from), low + part * (high - low));
        svg.push_str(&format!(
            "<path d=\"M{:.1} {TOP}V{:.1}M{LEFT} {:.1}H{:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{vx:.0}</text>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{vy:.2}</text>\n",
            x(vx),
            HEIGHT - BOTTOM,
            y(vy),
            WIDTH - RIGHT,
            x(vx),
            HEIGHT - BOTTOM + 16.0,
            LEFT - 6.0,
            y(vy) + 4.0,
        ));
    }
    for (color, width, values) in [("#9bd", 1.0, losses.to_vec()), ("#06c", 2.0, smoothed(losses))] {
        let stride = values.len().div_ceil(POINTS_MAX).max(1);
        let points = values.iter().enumerate().filter(|(i, l)| i % stride == 0 && l.is_finite());
        let points: Vec<String> =
            points.map(|(i, l)| format!("{:.1},{:.1}", x(from + i as f64), y(f64::from(*l)))).collect();
        svg.push_str(&format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\"/>\n",
            points.join(" ")
        ));
    }
    svg.push_str(&format!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">step</text>\n\
         <text transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">loss, and its mean over some steps\
         </text>\n</svg>\n",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 8.0,
        (TOP + HEIGHT - BOTTOM) / 2.0
    ));
    svg
}

/// The least height of the axis, so that a loss of zero is a picture too.
fn low_end(losses: &[f32]) -> f64 {
    if losses.iter().any(|l| l.is_finite() && *l > 0.0) { f64::MIN_POSITIVE } else { 1.0 }
}

/// Means over a window that ends at each step.
fn smoothed(losses: &[f32]) -> Vec<f32> {
    let window = (losses.len() / SMOOTHED).max(1);
    let mean = |i: usize| {
        let of = &losses[(i + 1).saturating_sub(window)..=i];
        of.iter().sum::<f32>() / of.len() as f32
    };
    (0..losses.len()).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_of_nothing_of_one_step_and_of_no_number_is_a_picture_too() {
        for values in [&[][..], &[0.0], &[2.5], &[f32::NAN, f32::INFINITY], &[3.0, f32::NAN, 1.0]] {
            let svg = losses("<run>", 7, values);
            assert!(svg.contains("&lt;run&gt;") && svg.ends_with("</svg>\n"), "{svg}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{values:?}: {svg}");
        }
    }

    #[test]
    fn a_long_run_is_a_picture_of_bounded_size() {
        let many: Vec<f32> = (0..100_000).map(|i| 1.0 / (1.0 + i as f32)).collect();
        assert!(losses("long", 0, &many).len() < 64 << 10);
    }
}
