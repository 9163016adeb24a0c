//! The curve as SVG.

use super::curve::Curve;
use super::percent;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 48.0;
const TOP: f64 = 40.0;
const RIGHT: f64 = 20.0;
/// Lines of the grid on each axis.
const GRID: usize = 5;

/// From figures to places in the picture.
struct Scale {
    from: f64,
    to: f64,
    at: f64,
    end: f64,
}

impl Scale {
    fn place(&self, v: f64) -> f64 {
        self.at + (v - self.from) / (self.to - self.from) * (self.end - self.at)
    }
}

/// Added time over budget, with the proven bound below it.
pub(super) fn curve(c: &Curve) -> String {
    let points: Vec<(f64, f64, f64)> = c
        .points
        .iter()
        .map(|s| {
            let bound = s.lower_bound_ns as f64 / s.base_time_ns.max(1) as f64 - 1.0;
            (percent(s.budget_bytes, c.peak), 100.0 * s.overhead(), 100.0 * bound.max(0.0))
        })
        .collect();
    let least = points.iter().map(|p| p.0).fold(100.0, f64::min);
    let widest = points.iter().map(|p| p.0).fold(100.0, f64::max);
    let tallest = points.iter().map(|p| p.1).fold(0.0, f64::max);
    let x = Scale { from: (least - 5.0).max(0.0), to: widest, at: LEFT, end: WIDTH - RIGHT };
    let y = Scale { from: 0.0, to: nice(tallest), at: HEIGHT - BOTTOM, end: TOP };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"14\">{}</text>\n",
        escape(&c.title)
    );
    grid(&mut svg, &x, &y);
    for (color, dash, of) in [("#999", "4 3", 1), ("#06c", "none", 0)] {
        let line: Vec<String> = points
            .iter()
            .map(|p| format!("{:.1},{:.1}", x.place(p.0), y.place(if of == 0 { p.1 } else { p.2 })))
            .collect();
        svg.push_str(&format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>\n",
            line.join(" ")
        ));
    }
    for p in &points {
        svg.push_str(&format!(
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"#06c\"><title>{:.1} % of the memory: +{:.2} % time, bound \
             +{:.2} %</title></circle>\n",
            x.place(p.0),
            y.place(p.1),
            p.0,
            p.1,
            p.2
        ));
    }
    svg.push_str("</svg>\n");
    svg
}

fn grid(svg: &mut String, x: &Scale, y: &Scale) {
    let line = |x1: f64, y1: f64, x2: f64, y2: f64| {
        format!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#ddd\"/>\n")
    };
    for i in 0..=GRID {
        let part = i as f64 / GRID as f64;
        let (vx, vy) = (x.from + part * (x.to - x.from), y.from + part * (y.to - y.from));
        let (px, py) = (x.place(vx), y.place(vy));
        svg.push_str(&line(px, y.at, px, y.end));
        svg.push_str(&line(x.at, py, x.end, py));
        svg.push_str(&format!(
            "<text x=\"{px:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{vx:.0} %</text>\n",
            y.at + 16.0
        ));
        svg.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{vy:.1} %</text>\n",
            x.at - 6.0,
            py + 4.0
        ));
    }
    svg.push_str(&format!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">budget, share of the peak without one</text>\n\
         <text transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">added time (dashed: proven bound)\
         </text>\n",
        (x.at + x.end) / 2.0,
        HEIGHT - 10.0,
        (y.at + y.end) / 2.0
    ));
}

/// The next of 1, 2, 5, 10, .. that is not below.
fn nice(v: f64) -> f64 {
    let mut step = 1.0;
    for factor in [2.0, 2.5, 2.0].into_iter().cycle() {
        if step >= v || step > 1e9 {
            break;
        }
        step *= factor;
    }
    step
}

/// Text in XML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_figures() {
        assert_eq!([0.0, 1.2, 3.0, 7.0, 13.0, 40.0].map(nice), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
    }

    #[test]
    fn an_empty_curve_is_a_picture_too() {
        let c = Curve { title: "<a&b>".into(), peak: 0, points: Vec::new(), infeasible: None };
        let svg = curve(&c);
        assert!(svg.contains("&lt;a&amp;b&gt;") && svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{svg}");
    }
}
