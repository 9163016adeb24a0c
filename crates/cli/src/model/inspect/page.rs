//! One HTML page that needs nothing else: figures, cost by layer, memory over the run, the graph.

use super::figures::{Figures, Layer};
use crate::sizes::show;
use crate::svg::escape;

const STYLE: &str = "body{font:14px/1.45 system-ui,sans-serif;max-width:1240px;margin:2em auto;padding:0 1em;color:#222}\
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}pre{background:#f6f6f6;padding:.8em;overflow:auto;white-space:pre-wrap}\
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.2em .7em;border-bottom:1px solid #e4e4e4;vertical-align:top}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}th{position:sticky;top:0;background:#fff;cursor:pointer}\
.bar{background:#4269d0;height:.7em;display:inline-block}.graph{overflow:auto;max-height:85vh;border:1px solid #ddd}\
.graph svg{min-width:900px}input{font:inherit;padding:.2em .5em;width:22em}";

/// Sorts by a click on a head, and shows the rows that contain the typed text.
const SCRIPT: &str = "const t=document.querySelector('table');if(t){const b=t.tBodies[0];\
t.querySelectorAll('th').forEach((h,i)=>{let up=false;h.onclick=()=>{const k=r=>r.cells[i].dataset.v??r.cells[i].textContent;\
const n=x=>isNaN(+x)?x:+x;[...b.rows].sort((p,q)=>{const a=n(k(p)),c=n(k(q));return (a<c?-1:a>c?1:0)*(up?1:-1)})\
.forEach(r=>b.append(r));up=!up}});document.querySelector('input').oninput=e=>{const q=e.target.value.toLowerCase();\
[...b.rows].forEach(r=>r.hidden=!r.textContent.toLowerCase().includes(q))}}";

/// The page; with the pictures of graph and memory, if there is a plan.
pub(super) fn html(figures: &Figures, pictures: Option<[&str; 2]>) -> String {
    let mut s = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{0}</title><style>{STYLE}</style>\n<h1>{0}</h1>\n\
         <pre>{1}</pre>\n",
        escape(&figures.title),
        escape(&figures.summary()),
    );
    if let Some([graph, memory]) = pictures {
        s += "<h2>Memory over a run</h2>\n";
        s += memory;
        if let Some(p) = &figures.planned {
            s += &layers(&p.layers);
        }
        s += "<h2>Graph, as it runs</h2>\n<div class=\"graph\">";
        s += graph;
        s += "</div>\n";
    }
    s + "<script>" + SCRIPT + "</script>\n</html>\n"
}

fn layers(all: &[Layer]) -> String {
    let most = all.iter().map(|l| l.flops).max().unwrap_or(0).max(1);
    let sum = all.iter().map(|l| l.flops).sum::<u64>().max(1);
    let mut s = "<h2>Layers</h2>\n<p>In the order in which they run; a click on a head sorts. <input \
                 placeholder=\"show those with this text\"></p>\n<table><thead><tr><th>layer<th>operators<th>result\
                 <th class=\"n\">parameters<th class=\"n\">result bytes<th class=\"n\">MFLOP<th class=\"n\">%<th></tr></thead>\n<tbody>"
        .to_owned();
    for l in all {
        s += &format!(
            "<tr><td>{}<td>{}<td>{}<td class=\"n\" data-v=\"{}\">{}<td class=\"n\" data-v=\"{}\">{}<td class=\"n\">{:.2}\
             <td class=\"n\">{:.1}<td data-v=\"{}\"><span class=\"bar\" style=\"width:{:.0}px\"></span></tr>\n",
            escape(&l.name),
            escape(&l.ops.join(" ")),
            escape(&l.result),
            l.weights,
            if l.weights > 0 { l.weights.to_string() } else { String::new() },
            l.result_bytes,
            show(l.result_bytes),
            l.flops as f64 / 1e6,
            100.0 * l.flops as f64 / sum as f64,
            l.flops,
            120.0 * l.flops as f64 / most as f64,
        );
    }
    s + "</tbody></table>\n"
}
