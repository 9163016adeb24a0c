#!/usr/bin/env python3
"""Write the narrow table of speed in README.md: a digest of the wide ones in docs/src/benchmarks.md.

    python3 scripts/readme_speed.py            # prints it
    python3 scripts/readme_speed.py --write    # puts it between the markers of README.md

A row has the time of the compiled form, that of the fastest other system of the same run, and the largest of the ratios
between them, which is the one to that system. Rows are those of the most threads.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MARKS = ("<!-- speed-table -->\n", "<!-- /speed-table -->\n")
OWN = ("eager ms", "compiled ms")


def wide(name):
    """The rows of a table of the book, as dictionaries."""
    text = (ROOT / "docs/src/benchmarks.md").read_text()
    body = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, re.S)
    if not body:
        sys.exit(f"docs/src/benchmarks.md has no {name}")
    lines = [[c.strip() for c in l.strip("|\n ").split(" | ")] for l in body[1].splitlines() if l.startswith("| `") or l.startswith("| work")]
    return [dict(zip(lines[0], line)) for line in lines[1:]]


def narrow():
    lines = ["| work | batch | Remat ms | best other ms | ratio |", "|---|--:|--:|---|--:|"]
    for rows in (wide("network-table"), wide("inference-table")):
        most = max(row["threads"] for row in rows)
        for row in (r for r in rows if r["threads"] == most):
            others = {k[:-3]: float(v) for k, v in row.items() if k.endswith(" ms") and k not in OWN and v}
            ratio, best = max((float(row[f"compiled / {name}"]), name) for name in others)
            lines.append(f"| {row['work']} | {row['batch']} | {row['compiled ms']} | {others[best]} ({best}) | {ratio:.2f} |")
    return "\n".join(lines) + "\n"


def main():
    text = narrow()
    if sys.argv[1:] not in ([], ["--write"]):
        sys.exit(__doc__)
    if not sys.argv[1:]:
        return print(text, end="")
    readme = ROOT / "README.md"
    begin, end = MARKS
    before, rest = readme.read_text().split(begin)
    readme.write_text(before + begin + text + end + rest.split(end)[1])


if __name__ == "__main__":
    main()
