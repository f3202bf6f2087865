"""The report's plots, with matplotlib: each takes what choose.py has chosen and returns a figure.

Colours have names (Paint). In the page they are CSS variables, so that one picture suits light and dark screens and paper.
"""

import hashlib
import io
import re

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator  # noqa: E402
from page import DARK, LIGHT  # noqa: E402

# What stands in the picture for a name until the page has it: colours that nothing else has.
MARKS = {name: f"#0f{i:02x}e7" for i, name in enumerate(LIGHT, 1)}
WIDTH = 9.6  # inches


class Paint:
    def __init__(self, colours):
        self.__dict__.update(colours)


def start(paint, rows, columns, height, **options):
    plt.rcParams.update(
        {
            "font.size": 9,
            "axes.titlesize": 9.5,
            "axes.titlelocation": "left",
            "axes.titleweight": "bold",
            "axes.labelsize": 9,
            "legend.fontsize": 8.5,
            "xtick.labelsize": 8.5,
            "ytick.labelsize": 8.5,
            "svg.fonttype": "none",
            "figure.facecolor": "none",
            "axes.facecolor": "none",
            "savefig.facecolor": "none",
            "text.color": paint.ink,
            "axes.labelcolor": paint.ink,
            "axes.edgecolor": paint.muted,
            "xtick.color": paint.muted,
            "ytick.color": paint.muted,
            "xtick.labelcolor": paint.ink,
            "ytick.labelcolor": paint.ink,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.linewidth": 0.8,
            "grid.color": paint.grid,
            "grid.linewidth": 0.8,
            "axes.grid": True,
            "axes.axisbelow": True,
            "legend.frameon": False,
            "lines.linewidth": 1.6,
            "lines.markersize": 5,
        }
    )
    return plt.subplots(rows, columns, figsize=(WIDTH, height), layout="constrained", **options)


def plain(value, _=None):
    """1, 2.5, 1000: a tick's number without trailing noise."""
    return f"{value:g}"


def at_sizes(axes, sizes):
    """A logarithmic axis of batch sizes, with a tick at each that was measured, and no others."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sizes))
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(min(sizes) / 1.5, max(sizes) * 1.5)
    axes.grid(axis="x", visible=False)


def log_ticks(axis, ticks):
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(plain))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def with_tail(axes, xs, records, colour, marker="o", label=None, style="-", shift=1.0, filled=True, paper=None):
    """Medians as a line with marks; p99s as a whisker with a cap above them."""
    xs = [x * shift for x in xs]
    values = [r.value for r in records]
    axes.plot(
        xs, values, style, color=colour, marker=marker, label=label, markerfacecolor=colour if filled else paper, zorder=3
    )
    tails = [(x, r.value, r.p99) for x, r in zip(xs, records) if r.p99 is not None]
    if tails:
        axes.vlines(
            [t[0] for t in tails], [t[1] for t in tails], [t[2] for t in tails], color=colour, linewidth=1, alpha=0.75, zorder=2
        )
        axes.plot(
            [t[0] for t in tails],
            [t[2] for t in tails],
            linestyle="none",
            marker="_",
            markersize=6,
            color=colour,
            alpha=0.75,
            zorder=2,
        )


def plot_targets(axes, paint, sizes, records, label):
    """A dash at each size whose record has a target."""
    targets = [(s, r.target) for s, r in zip(sizes, records) if r.target]
    axes.plot(
        [s for s, _ in targets],
        [t for _, t in targets],
        linestyle="none",
        marker="_",
        markersize=14,
        markeredgewidth=1.8,
        color=paint.ink,
        label=label,
    )


def legend_above(figure, axes, columns=6):
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=columns, handlelength=1.8, columnspacing=1.6)


# -------------------------------------------------------------------------------------------------------------------- host time


def host_time(paint, panels):
    """What a step costs the host, the ratio below; panels: [(title, {"whole" or "standing": (sizes, times, bare, ratios)})]."""
    figure, grid = start(paint, 2, len(panels), 5.0, sharex=True, squeeze=False, height_ratios=[3, 2])
    looks = {"whole": (paint.blue, "o", "batch given whole", 0.95), "standing": (paint.orange, "s", "standing batch", 1.05)}
    for column, (title, series) in enumerate(panels):
        top, low = grid[0][column], grid[1][column]
        for name, (sizes, times, bare, ratios) in series.items():
            colour, marker, label, shift = looks[name]
            with_tail(top, sizes, times, colour, marker, f"prepare + launch, {label}", shift=shift)
            top.plot(
                [s * shift for s in sizes],
                [r.value for r in bare],
                ":",
                color=colour,
                marker=marker,
                markersize=3.5,
                markerfacecolor=paint.paper,
                linewidth=1.2,
                label="bare launch, in turn with it",
            )
            low.plot([s * shift for s in sizes], [r.value for r in ratios], color=colour, marker=marker)
            plot_targets(low, paint, sizes, ratios, "target" if name == "whole" or "whole" not in series else None)
            at_sizes(low, sizes)
        most = max(r.p99 or r.value for s in series.values() for r in s[1])
        if most > 12:
            top.set_yscale("log")
            log_ticks(top.yaxis, [t for t in (1, 2, 5, 10, 20, 50, 100) if t < 1.5 * most])
            top.set_ylim(0.9, 1.2 * most)
            for axes in (top, low):
                axes.annotate(
                    "logarithmic",
                    (0, 1),
                    (5, -4),
                    xycoords="axes fraction",
                    textcoords="offset points",
                    va="top",
                    fontsize=8,
                    color=paint.muted,
                )
            highest = max(r.value for s in series.values() for r in s[3])
            low.set_yscale("log")
            log_ticks(low.yaxis, [t for t in (1, 1.5, 2, 3, 5, 10, 20) if t < 1.3 * highest])
            low.set_ylim(0.9, 1.3 * highest)
        else:
            top.set_ylim(0, 1.08 * most)
            low.set_ylim(0.98, 1.1 * max([r.value for s in series.values() for r in s[3]] + [1.25]))
        top.set_title(title)
        low.set_xlabel("requests in the batch")
    grid[0][0].set_ylabel("host time, µs\nmedian, whisker to p99")
    grid[1][0].set_ylabel("over the bare launch, ×")
    legend_above(figure, grid[0][0], 4)
    handles, labels = grid[1][0].get_legend_handles_labels()
    grid[1][0].legend(handles[:1], labels[:1], loc="upper left")
    return figure


def loops(paint, rows):
    """rows: [(loop, requests, time, bare)]: the same in loops of slow steps and with cold caches."""
    figure, axes = start(paint, 1, 1, 0.27 * len(rows) + 1.1)
    names, place, before = [], 0.0, None
    for loop, requests, time, bare in rows:
        place += 0.6 if before not in (None, loop) else 0.0
        for record, colour, marker, shift, label in (
            (time, paint.blue, "o", -0.16, "prepare + launch"),
            (bare, paint.grey, "D", 0.16, "bare launch"),
        ):
            y = place + shift
            axes.plot([record.value, record.p99], [y, y], color=colour, linewidth=1, alpha=0.75)
            axes.plot([record.p99], [y], marker="|", color=colour, markersize=6, alpha=0.75)
            axes.plot(
                [record.value], [y], marker=marker, color=colour, linestyle="none", label=label if before is None else None
            )
        names.append((place, f"{loop}, {requests} requests"))
        place, before = place + 1.0, loop
    axes.set_yticks([n[0] for n in names], [n[1] for n in names])
    axes.invert_yaxis()
    axes.set_xscale("log")
    log_ticks(axes.xaxis, [1, 2, 5, 10, 20, 50])
    axes.set_xlim(1, 1.15 * max(r.p99 for row in rows for r in row[2:]))
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("host time of a step, µs (logarithmic): median, whisker to p99")
    legend_above(figure, axes)
    return figure


# -------------------------------------------------------------------------------------------------------------------- attention


MOST = 4.0  # times the floor: what is beyond it is written, not drawn, and leaves room for the others


def beyond(axes, y, floor, own, others, paint):
    """A row that the axis does not reach: its numbers, at the right edge."""
    parts = [f"cgr alone {own['alone'] / floor:.1f}×"] if "alone" in own else []
    parts += [f"in steps {own['in steps'] / floor:.1f}×"] if "in steps" in own else []
    if others:
        low, high = min(others.values()) / floor, max(others.values()) / floor
        parts.append(f"peers {low:.1f}×" if len(others) == 1 else f"peers {low:.1f} to {high:.1f}×")
    axes.annotate(
        "beyond the axis: " + ", ".join(parts) + "  ▸",
        (MOST, y),
        (-4, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        fontsize=8.5,
        color=paint.muted,
    )


def attention(paint, rows, peers):
    """rows: [(case, floor us, {"in steps": us, "alone": us}, {peer: us})]: times over the floor, which is the line at 1."""
    figure, axes = start(paint, 1, 1, 0.29 * len(rows) + 1.2)
    looks = {"in steps": (paint.orange, "s", "cgr, in steps"), "alone": (paint.blue, "o", "cgr, attention alone")}
    shapes = [(paint.green, "^"), (paint.violet, "v"), (paint.rose, "D")]
    for y, (_, floor, own, others) in enumerate(rows):
        if max([*own.values(), *others.values()]) / floor > MOST:
            beyond(axes, y, floor, own, others, paint)
            continue
        best = min(others.values(), default=None)
        if best and "alone" in own:
            axes.plot(
                [best / floor, own["alone"] / floor], [y, y], color=paint.grid, linewidth=5, solid_capstyle="butt", zorder=1
            )
        for (peer, us), (colour, shape) in zip(((p, others.get(p)) for p in peers), shapes):
            if us:
                axes.plot(
                    [us / floor],
                    [y],
                    marker=shape,
                    color=colour,
                    markersize=5,
                    linestyle="none",
                    markerfacecolor=paint.paper,
                    zorder=4,
                )
        for name, us in own.items():
            colour, shape, _ = looks[name]
            axes.plot([us / floor], [y], marker=shape, color=colour, markersize=5.5, linestyle="none", zorder=3)
    for name, (colour, shape, label) in looks.items():
        axes.plot([], [], marker=shape, color=colour, linestyle="none", label=label)
    for peer, (colour, shape) in zip(peers, shapes):
        axes.plot([], [], marker=shape, color=colour, markerfacecolor=paint.paper, linestyle="none", label=peer)
    axes.axvline(1.0, color=paint.ink, linewidth=1.4, zorder=2)
    axes.set_yticks(range(len(rows)), [f"{case}" for case, *_ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xscale("log")
    axes.set_xlim(0.97, MOST)
    log_ticks(axes.xaxis, [1, 1.1, 1.25, 1.5, 2, 2.5, 3, 4])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}×"))
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("time over the floor (logarithmic): 1× is what KV bytes or arithmetic need at least")
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(len(rows)), [f"{floor:.1f}" if floor < 100 else f"{floor:.0f}" for _, floor, *_ in rows])
    right.tick_params(length=0)
    right.spines["right"].set_visible(False)
    right.set_ylabel("floor, µs")
    legend_above(figure, axes, 5)
    return figure


# ---------------------------------------------------------------------------------------------------------------------- padding


def padding(paint, rows):
    """rows: [(key, steps, real, padded)]: where padding goes, the most wasteful first."""
    figure, (left, right) = start(paint, 1, 2, 0.27 * len(rows) + 1.2, sharey=True, width_ratios=[3, 2])
    places = range(len(rows))
    waste = [padded - real for _, _, real, padded in rows]
    left.barh(places, waste, color=paint.orange, height=0.66)
    whole = sum(waste) or 1
    for y, tokens in zip(places, waste):
        left.annotate(
            f"{tokens:,.0f}  ({100 * tokens / whole:.0f}%)" if tokens else "0",
            (tokens, y),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=paint.ink,
        )
    left.set_xlim(0, 1.22 * max(waste + [1]))
    left.set_title("padded tokens, all steps (share of all padding)")
    left.set_xlabel("tokens")
    left.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    left.set_yticks(places, [f"{key}  ·  {steps:,.0f} steps" for key, steps, _, _ in rows])
    left.set_ylim(len(rows) - 0.4, -0.6)
    shares = [100 * real / padded for _, _, real, padded in rows]
    right.barh(places, shares, color=paint.blue, height=0.66)
    right.barh(places, [100 - s for s in shares], left=shares, color=paint.grid, height=0.66)
    for y, share in zip(places, shares):
        right.annotate(
            f"{share:.0f}%",
            (101, y),
            (2, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=paint.ink,
            annotation_clip=False,
        )
    right.set_xlim(0, 112)
    right.set_xticks([0, 25, 50, 75, 100])
    right.set_title("how full its graph is")
    right.set_xlabel("real tokens, % of padded")
    for axes in (left, right):
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
    return figure


# ----------------------------------------------------------------------------------------------------------------------- phases


def phases(paint, panels):
    """panels: what choose.phases has found, below each other, each with a scale of its own."""
    heights = [0.3 * len(p.rows) + 0.75 for p in panels]
    figure, grid = start(paint, len(panels), 1, sum(heights) + 0.25, squeeze=False, gridspec_kw={"height_ratios": heights})
    for axes, panel in zip(grid[:, 0], panels):
        phases_panel(paint, axes, panel)
    grid[-1, 0].set_xlabel("GPU time of a replay, µs: median with a whisker to p99, or mean  ·  share of the time in graphs")
    return figure


def phases_panel(paint, axes, panel):
    for y, (_, record, share) in enumerate(panel.rows):
        axes.barh([y], [record.value], color=paint.blue, height=0.62)
        end = record.value
        if record.p99 is not None:
            axes.plot([record.value, record.p99], [y, y], color=paint.ink, linewidth=1)
            axes.plot([record.p99], [y], marker="|", color=paint.ink, markersize=7)
            end = max(end, record.p99)
        text = f"{record.value:,.1f}" + (f"  ·  {share:.1f}%" if share is not None else "")
        axes.annotate(text, (end, y), (5, 0), textcoords="offset points", va="center", fontsize=8.5, color=paint.ink)
    outside = f"; outside of graphs {panel.outside.value:,.1f} µs" if panel.outside and panel.outside.value else ""
    axes.set_title(panel.source + outside)
    axes.set_yticks(range(len(panel.rows)), [phase for phase, *_ in panel.rows])
    axes.set_ylim(len(panel.rows) - 0.4, -0.6)
    axes.set_xlim(0, 1.2 * max(max(r.value, r.p99 or 0) for _, r, _ in panel.rows) or 1)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)


# -------------------------------------------------------------------------------------------------------- what cgr's nodes take


def own_nodes(paint, steps, kernels, alone):
    """Three panels over batch size. steps: {batch: (sizes, records)} of a step prepared ahead; kernels: {name: (sizes, values)}
    that each adds to such a step; alone: the same of a node by itself."""
    panels = [
        p
        for p in (
            (steps, "all of cgr, in a step prepared ahead"),
            (kernels, "each kernel, added to such a step"),
            (alone, "each kernel, a node by itself"),
        )
        if p[0]
    ]
    figure, grid = start(paint, 1, len(panels), 3.9, squeeze=False)
    colours = {
        "prologue": paint.blue,
        "planner": paint.orange,
        "fetch": paint.violet,
        "epilogue": paint.green,
        "sum": paint.ink,
    }
    for axes, (data, title) in zip(grid[0], panels):
        sizes_seen = set()
        if data is steps:
            looks = iter([(paint.blue, "o"), (paint.orange, "s"), (paint.violet, "^"), (paint.green, "v")])
            for batch, (sizes, records) in data.items():
                colour, marker = next(looks)
                axes.plot(sizes, [r.value for r in records], color=colour, marker=marker, label=batch)
                sizes_seen |= set(sizes)
            plot_targets(axes, paint, *next(iter(data.values())), "target")
        else:
            markers = iter("os^vDP")
            for name, (sizes, values) in data.items():
                axes.plot(
                    sizes,
                    values,
                    ":" if name == "sum" or "bus" in name else "-",
                    marker=next(markers),
                    label=name,
                    color=colours.get(name.split(",")[0].split(" over")[0], paint.muted),
                )
                sizes_seen |= set(sizes)
        at_sizes(axes, sorted(sizes_seen))
        axes.set_title(title)
        axes.set_xlabel("requests in the batch")
        low, high = axes.get_ylim()
        axes.set_ylim(min(0, low), high + 0.42 * (high - min(0, low)))
        axes.legend(loc="upper left", fontsize=8, handlelength=1.6, labelspacing=0.3)
    grid[0][0].set_ylabel("GPU time, µs")
    return figure


def planners(paint, series, target):
    """series: [(name, sizes, values, what it is like)]: planners of formats, a node by itself."""
    figure, axes = start(paint, 1, 1, 3.9)
    colours = {
        "cgr": paint.ink,
        "FlashAttention-3": paint.blue,
        "FlashInfer": paint.orange,
        "FlashMLA": paint.green,
        "block table": paint.violet,
    }
    styles, markers = ["-", "--", ":"], iter("os^vDPX<>")
    used, sizes_seen = {}, set()
    for name, sizes, values, family in series:
        n = used.setdefault(family, 0)
        used[family] += 1
        axes.plot(sizes, values, styles[n % 3], color=colours[family], marker=next(markers), label=name)
        sizes_seen |= set(sizes)
    at_sizes(axes, [s for s in (1, 8, 64, 256, 1024, 4096) if min(sizes_seen) <= s <= max(sizes_seen)])
    axes.axhline(target, color=paint.muted, linewidth=1.2, linestyle=(0, (6, 3)))
    axes.annotate(
        f"target for other projects' planners, up to 1024 requests: {target:g} µs",
        (min(sizes_seen), target),
        (0, 4),
        textcoords="offset points",
        fontsize=8.5,
        color=paint.muted,
    )
    axes.set_ylim(0, None)
    axes.set_ylabel("GPU time beyond an empty node, µs")
    axes.set_xlabel("requests in the batch")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", handlelength=2.4, labelspacing=0.7)
    return figure


# --------------------------------------------------------------------------------------------------------------------- to files


def to_svg(figure, name):
    """The picture as a part of a page: named colours as CSS variables, and ids that no other picture has."""
    plt.rcParams["svg.hashsalt"] = name
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    for colour, mark in MARKS.items():
        svg = svg.replace(mark, f"var(--{colour}, {LIGHT[colour]})")
    prefix = hashlib.sha256(name.encode()).hexdigest()[:6]
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}-", svg)
    svg = re.sub(r'(xlink:href|href)="#', rf'\1="#{prefix}-', svg)
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)
    return svg.replace("<svg ", '<svg role="img" ', 1)


def draw(function, name, *data, png=None):
    """A plot as SVG; with a folder `png`, as pictures of both kinds there too."""
    figure = function(Paint(MARKS), *data)
    svg = to_svg(figure, name)
    plt.close(figure)
    for suffix, colours in (("", LIGHT), ("_dark", DARK)) if png else ():
        figure = function(Paint(colours), *data)
        figure.savefig(f"{png}/{name}{suffix}.png", dpi=110, facecolor=colours["paper"])
        plt.close(figure)
    return svg
