//! One HTML page that needs nothing else: the table, the curve, and the arena over time for every budget.

use remat_graph::plan::problem::Problem;
use remat_graph::plan::schedule::Schedule;
use serde_json::{Value, json};

use super::curve::Curve;
use super::timeline::{Kind, blocks};
use super::{percent, picture};
use crate::svg;

/// The page with places for the figures.
const PAGE: &str = include_str!("page.html");

/// The page; `shown` is the point whose arena is drawn first.
pub(super) fn html(c: &Curve, p: &Problem, shown: usize) -> String {
    let points: Vec<Value> = c.points.iter().map(|s| point(c, p, s)).collect();
    let storages: Vec<&str> = (0..p.storages().len()).map(|s| p.storage_name(s)).collect();
    let ops: Vec<&str> = p.ops().iter().map(|o| o.name.as_str()).collect();
    let infeasible: Vec<f64> = c.infeasible.iter().map(|&b| percent(b, c.peak)).collect();
    let data = json!({ "points": points, "storages": storages, "ops": ops, "shown": shown, "infeasible": infeasible });
    // A name may hold `</script>`; inside JSON `<` occurs in strings only.
    let data = data.to_string().replace('<', "\\u003c");
    fill(&[("{{title}}", &svg::escape(&c.title)), ("{{curve}}", &picture::curve(c)), ("{{data}}", &data)])
}

/// The page in one pass: nothing in a name is taken for a place.
fn fill(texts: &[(&str, &str)]) -> String {
    let (mut page, mut rest) = (String::new(), PAGE);
    while let Some(at) = rest.find("{{") {
        page.push_str(&rest[..at]);
        rest = &rest[at..];
        let found = texts.iter().find(|(place, _)| rest.starts_with(place));
        let (place, text) = found.copied().unwrap_or(("{{", "{{"));
        page.push_str(text);
        rest = &rest[place.len()..];
    }
    page + rest
}

fn point(c: &Curve, p: &Problem, s: &Schedule) -> Value {
    let blocks: Vec<Value> = blocks(p, s)
        .iter()
        .map(|b| {
            let kind = match b.kind {
                Kind::Given => 0,
                Kind::First => 1,
                Kind::Again => 2,
                Kind::Workspace => 3,
            };
            json!([kind, b.owner, b.from_ns, b.to_ns, b.at, b.bytes])
        })
        .collect();
    json!({
        "percent": percent(s.budget_bytes, c.peak),
        "budget": s.budget_bytes,
        "arena": s.arena_bytes,
        "time": s.time_ns,
        "added": 100.0 * s.overhead(),
        "gap": 100.0 * s.gap(),
        "repeats": s.repeats(p),
        "blocks": blocks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_stay_text() {
        let dag = r#"{ "version": 1, "values": [ { "name": "</script><b>{{data}}", "bytes": 4 } ], "ops": [], "outputs": [] }"#;
        let p = Problem::from_json(dag).expect("valid");
        let title = "</title>{{data}}".to_owned();
        let page = html(&Curve { title, peak: 4, points: Vec::new(), infeasible: Vec::new() }, &p, 0);
        assert!(page.contains("\\u003c/script>\\u003cb>{{data}}"), "the name is there as data");
        assert_eq!(page.matches("</script>").count(), 1);
        assert!(page.contains("<title>&lt;/title&gt;{{data}}</title>"));
        assert!(!page.contains("src=") && !page.contains("href="), "nothing is loaded");
    }
}
