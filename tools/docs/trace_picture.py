"""Draws steps of a trace that cgr_runtime_trace or the example has written, as an SVG.

    trace_picture.py TRACE.json OUT.svg [FIRST [STEPS]]      FIRST: the number of the first step (default: the first one), STEPS: 3

docs/trace.svg is made so:

    llama --device host --concurrent 3 --requests 3 --tokens 12 --quiet --trace trace.json
    tools/docs/trace_picture.py trace.json docs/trace.svg 17 2
"""

import html
import json
import sys

WIDTH, LEFT, RIGHT, TOP, ROW, GAP = 960, 128, 12, 34, 19, 12
KINDS = ["prepare", "launch", "step", "prologue", "plan", "fetch", "epilogue", "record", "layer", "append", "attention"]
STYLE = """
text { font: 11px system-ui, sans-serif; fill: #24292f; } .track { font-weight: 600; } .axis { fill: #656d76; }
line { stroke: #8884; } rect { stroke: #fff; stroke-width: .6; fill: #d0d7de; }
.prepare, .launch { fill: #79b8ff; } .prologue, .epilogue { fill: #ffb86b; } .plan, .fetch { fill: #85d996; }
.append { fill: #ff9bb3; } .attention { fill: #c8a6ff; } .record { fill: #eaeef2; } .layer { fill: #d8dee4; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .axis { fill: #9198a1; } rect { stroke: #0d1117; fill: #3d444d; }
  .prepare, .launch { fill: #1f5f99; } .prologue, .epilogue { fill: #9a5b13; } .plan, .fetch { fill: #23723a; }
  .append { fill: #9c3550; } .attention { fill: #6440a3; } .record { fill: #212830; } .layer { fill: #2f3742; }
}
"""


def read_events(trace, first=None, steps=3):
    """The bars of those steps: [(track, name, begin, end)], microseconds from the beginning of the first."""
    found = [event for event in trace["traceEvents"] if event["ph"] == "X" and "seq" in event.get("args", {})]
    numbers = sorted({event["args"]["seq"] for event in found})
    if first is None and numbers:
        first = numbers[0]
    shown = [event for event in found if first <= event["args"]["seq"] < first + steps]
    if not shown:
        raise ValueError("the trace has no step %s, expected one of %s" % (first, numbers or "none: it is empty"))
    zero = min(event["ts"] for event in shown)
    return [(event["tid"], name_of(event), event["ts"] - zero, event["ts"] - zero + event["dur"]) for event in shown]


def name_of(event):
    return "%s %d" % (event["name"], event["args"]["seq"]) if event["name"] in ("step", "prepare", "launch") else event["name"]


def read_tracks(trace):
    return {event["tid"]: event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M" and event["name"] == "thread_name"}


def stack(bars):
    """Each bar with its depth: how many others of its track it is inside."""
    out, open_ends = [], []
    for track, name, begin, end in sorted(bars, key=lambda bar: (bar[2], -bar[3])):
        while open_ends and open_ends[-1] <= begin + 0.01:  # times have nanoseconds
            open_ends.pop()
        out.append((len(open_ends), name, begin, end))
        open_ends.append(end)
    return out


def time_marks(length):
    """About six round times, in microseconds."""
    unit = 1.0
    while length / unit > 10:
        unit *= 10
    step = next(unit * part for part in (0.2, 0.5, 1, 2) if length / (unit * part) <= 7)
    return [step * i for i in range(int(length / step) + 1)]


def draw_bar(x, width, y, name):
    kind = name.split()[0]
    bar = '<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"><title>%s</title></rect>' % (
        kind if kind in KINDS else "other", x, y, max(width, 1.5), ROW - 3, html.escape(name))
    if width > 6.2 * len(name) + 4:
        bar += '<text x="%.1f" y="%d">%s</text>' % (x + 3, y + 12, html.escape(name))
    elif kind == "launch":  # and prepare is right before it
        bar += '<text x="%.1f" y="%d">%s</text>' % (x + max(width, 1.5) + 3, y + 12, html.escape(name.replace(kind, "prepare, launch")))
    return bar


def draw(trace, first=None, steps=3):
    bars, names = read_events(trace, first, steps), read_tracks(trace)
    length = max(end for _, _, _, end in bars)
    scale = (WIDTH - LEFT - RIGHT) / length
    out, y = [], TOP
    for track in sorted({bar[0] for bar in bars}):
        stacked = stack([bar for bar in bars if bar[0] == track])
        out.append('<text class="track" x="4" y="%d">%s</text>' % (y + 12, html.escape(names.get(track, "track %d" % track))))
        out += [draw_bar(LEFT + begin * scale, (end - begin) * scale, y + depth * ROW, name) for depth, name, begin, end in stacked]
        y += (1 + max(depth for depth, _, _, _ in stacked)) * ROW + GAP
    marks = ""
    for time in time_marks(length):
        x = LEFT + time * scale
        marks += '<line x1="%.1f" y1="20" x2="%.1f" y2="%d"/><text class="axis" x="%.1f" y="14">%g us</text>' % (x, x, y - GAP, x + 2, time)
    return ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" role="img" aria-label="Steps on a time line">'
            "<style>%s</style>\n%s\n%s\n</svg>\n" % (WIDTH, y - GAP + 6, WIDTH, STYLE, marks, "\n".join(out)))


def main(source, out, first=None, steps=3):
    with open(source, encoding="utf-8") as file:
        trace = json.load(file)
    picture = draw(trace, None if first is None else int(first), int(steps))
    with open(out, "w", encoding="utf-8") as file:
        file.write(picture)


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
