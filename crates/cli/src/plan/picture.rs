//! The curve as SVG.

use super::curve::Curve;
use super::percent;
use crate::svg;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 48.0;
const TOP: f64 = 40.0;
const RIGHT: f64 = 20.0;
/// Most lines of the grid on each axis.
const GRID: f64 = 8.0;

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

    /// Round figures within the scale, as far apart as the grid wants them, and that distance.
    fn ticks(&self) -> (Vec<f64>, f64) {
        let step = nice((self.to - self.from) / GRID);
        let (first, last) = ((self.from / step - NEAR).ceil() as i64, (self.to / step + NEAR).floor() as i64);
        ((first..=last).map(|i| i as f64 * step).collect(), step)
    }
}

/// So near to a step of the grid is on it.
const NEAR: f64 = 1e-6;

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
    let x = Scale { from: 10.0 * ((least - 1.0) / 10.0).floor().max(0.0), to: widest, at: LEFT, end: WIDTH - RIGHT };
    let y = Scale { from: 0.0, to: nice(tallest), at: HEIGHT - BOTTOM, end: TOP };
    let mut svg = svg::begin(WIDTH, HEIGHT, 12) + &svg::title(LEFT, &c.title);
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
    for v in x.ticks().0 {
        let at = x.place(v);
        svg.push_str(&line(at, y.at, at, y.end));
        svg.push_str(&format!("<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{v:.0} %</text>\n", y.at + 16.0));
    }
    let (ticks, step) = y.ticks();
    let digits = if step < 1.0 { 1 } else { 0 };
    for v in ticks {
        let at = y.place(v);
        svg.push_str(&line(x.at, at, x.end, at));
        svg.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{v:.digits$} %</text>\n",
            x.at - 6.0,
            at + 4.0
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

/// The next of .., 0.5, 1, 2, 5, 10, .. that is not below; 1 for nothing at all.
fn nice(v: f64) -> f64 {
    if v <= 0.0 {
        return 1.0;
    }
    let decade = 10f64.powf(v.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().find(|step| step * decade >= v * (1.0 - NEAR));
    step.unwrap_or(10.0) * decade
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_figures() {
        assert_eq!([0.0, 0.3, 1.2, 3.0, 7.0, 13.0, 40.0].map(nice), [1.0, 0.5, 2.0, 5.0, 10.0, 20.0, 50.0]);
    }

    #[test]
    fn lines_of_the_grid_stand_at_round_figures() {
        let scale = |from, to| Scale { from, to, at: 0.0, end: 1.0 };
        assert_eq!(scale(20.0, 100.0).ticks(), ((2..=10).map(|i| 10.0 * f64::from(i)).collect(), 10.0));
        assert_eq!(scale(0.0, 5.0).ticks(), (vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 1.0));
        assert_eq!(scale(26.0, 41.0).ticks().0, [26.0, 28.0, 30.0, 32.0, 34.0, 36.0, 38.0, 40.0]);
    }

    #[test]
    fn an_empty_curve_is_a_picture_too() {
        let c = Curve { title: "<a&b>".into(), peak: 0, points: Vec::new(), infeasible: Vec::new() };
        let svg = curve(&c);
        assert!(svg.contains("&lt;a&amp;b&gt;") && svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{svg}");
    }
}
