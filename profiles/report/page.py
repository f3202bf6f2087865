"""The report as one page of HTML that needs nothing else: no file, no script, no network."""

import html

LIGHT = {
    "ink": "#22262b",
    "muted": "#6b7280",
    "grid": "#dfe3e8",
    "paper": "#ffffff",
    "blue": "#1f6fb4",
    "orange": "#cf5c12",
    "green": "#16836a",
    "violet": "#7a4fa3",
    "grey": "#8b929c",
    "rose": "#b83267",
}
DARK = {
    "ink": "#e4e7eb",
    "muted": "#9aa3ae",
    "grid": "#353b44",
    "paper": "#15181c",
    "blue": "#6ab2f0",
    "orange": "#f4995a",
    "green": "#4cc4a4",
    "violet": "#bf9be6",
    "grey": "#8b95a1",
    "rose": "#f27aa5",
}

STYLE = """
:root { color-scheme: light dark; %(light)s }
@media (prefers-color-scheme: dark) { :root { %(dark)s } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem; margin: 2rem auto;
  padding: 0 1rem }
h1 { font-size: 1.6rem; margin-bottom: .2rem }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .4rem; border-bottom: 1px solid var(--grid) }
p { max-width: 50rem }
.muted, figcaption, td.note { color: var(--muted) }
figure { margin: 1rem 0 }
figure svg { width: 100%%; height: auto; display: block }
figcaption { font-size: .85rem }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--grid); vertical-align: top }
td.n, th.n { text-align: right; white-space: nowrap }
.worse { color: var(--rose); font-weight: 600 }
.better { color: var(--green); font-weight: 600 }
.tiles { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.2rem 0 }
.tiles div { border: 1px solid var(--grid); border-radius: .4rem; padding: .5rem .9rem; flex: 1 1 13rem }
.tiles b { font-size: 1.3rem; display: block }
code { font-size: .9em }
summary { cursor: pointer }
.alarm { border-left: .3rem solid var(--rose); padding-left: .8rem }
@media print {
  :root { %(light)s }
  body { margin: 0 }
  figure, tr { break-inside: avoid }
  h2 { break-after: avoid }
  details:not([open]) { display: none }
}
"""


def variables(colours):
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


def esc(text):
    return html.escape(str(text), quote=True)


def number(value, digits=None):
    """As it was printed; with `digits` after the point, to match a number next to it."""
    return f"{value:,.10g}" if digits is None else f"{value:,.{digits}f}"


def digits_of(*values):
    return max(len(f"{v:.10g}".partition(".")[2]) for v in values)


def table(columns, rows, numeric=()):
    """Rows of texts, or of (text, class)."""

    def cell(tag, i, content):
        text, extra = content if isinstance(content, tuple) else (content, "")
        classes = " ".join(c for c in ("n" if i in numeric else "", extra) if c)
        return f"<{tag}{f' class={chr(34)}{classes}{chr(34)}' if classes else ''}>{esc(text)}</{tag}>"

    head = "".join(cell("th", i, c) for i, c in enumerate(columns))
    body = "\n".join("<tr>" + "".join(cell("td", i, c) for i, c in enumerate(row)) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def figure(svg, caption):
    return f"<figure>{svg}<figcaption>{esc(caption)}</figcaption></figure>"


def section(title, *parts):
    return f"<section><h2>{esc(title)}</h2>\n" + "\n".join(p for p in parts if p) + "</section>"


def paragraph(text, kind=""):
    return f'<p class="{kind}">{esc(text)}</p>' if kind else f"<p>{esc(text)}</p>"


def tiles(entries):
    return '<div class="tiles">' + "".join(f"<div><b>{esc(value)}</b>{esc(what)}</div>" for value, what in entries) + "</div>"


def details(summary, *parts):
    return f"<details><summary>{esc(summary)}</summary>\n" + "\n".join(parts) + "</details>"


def unit_of(number):
    """Of a record, or of a change."""
    return {"us": "µs", "x": "×", "count": ""}.get(number.unit, number.unit)


def changes_table(changes, tolerance):
    rows = []
    for c in changes:
        verdict = c.verdict(tolerance)
        rows.append(
            (
                ("" if c.percent is None else f"{c.percent:+.1f}%", verdict),
                number(c.before, digits_of(c.before, c.after)),
                number(c.after, digits_of(c.before, c.after)),
                unit_of(c),
                c.kind,
                ": ".join(t for t in (c.case, c.metric) if t),
                (verdict, verdict),
            )
        )
    return table(("change", "before", "after", "unit", "file", "what", ""), rows, (0, 1, 2))


def records_table(result):
    return table(
        ("case", "metric", "value", "p99", "unit", "target"),
        [
            (
                r.name(),
                r.metric,
                number(r.value),
                "" if r.p99 is None else number(r.p99),
                unit_of(r),
                "" if r.target is None else number(r.target),
            )
            for r in result.records
        ],
        (2, 3, 5),
    )


def provenance_table(results, here):
    rows = [
        (
            r.path.split("/")[-1],
            (r.folder, "" if r.folder == here else "note"),
            r.head.get("device", ""),
            r.head.get("date", ""),
            r.head.get("commit", ""),
            r.head.get("library", ""),
            str(len(r.records)),
        )
        for r in results
    ]
    return table(("file", "from", "device", "date", "commit", "library", "numbers"), rows, (6,))


def document(title, subtitle, body):
    style = STYLE % {"light": variables(LIGHT), "dark": variables(DARK)}
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{esc(title)}</title><style>{style}</style></head>\n<body><h1>{esc(title)}</h1>\n"
        f'<p class="muted">{esc(subtitle)}</p>\n{body}\n</body></html>\n'
    )
