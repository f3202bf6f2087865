#!/usr/bin/env python3
"""One page from the kept results: plots, targets, and what has changed since another set of results.

    profiles/report/run                                                        all kept results, of each kind the newest
    profiles/report/run profiles/results/h200_2026-11-23 [FOLDER ...]          these; later folders fill what the first ones lack
    profiles/report/run NEW [FOLDER ...] --against OLD [FOLDER ...]            and how they differ

`run` fetches matplotlib into a folder of its own; where python3 has it, `python3 profiles/report/report.py` does as well.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import sys

import choose
import compare
import page
import parse

PROFILES = pathlib.Path(__file__).absolute().parent.parent


def percent(text):
    value = float(text)
    if not math.isfinite(value) or value < 0:
        raise argparse.ArgumentTypeError(f"{text} is no percentage, expected 0 or more")
    return value


def options(arguments):
    parser = argparse.ArgumentParser(
        prog="profiles/report/run", formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__
    )
    parser.add_argument(
        "folders", nargs="*", metavar="FOLDER", help="folders of results; the first that has a file of a kind gives it"
    )
    parser.add_argument("--against", nargs="+", metavar="FOLDER", help="compare with these")
    parser.add_argument("--out", default="report.html", metavar="FILE", help="the page (report.html)")
    parser.add_argument("--json", metavar="FILE", help="write all numbers, and the changes")
    parser.add_argument("--metrics", metavar="FILE", help="a page of cgr_runtime_metrics, for the padding")
    parser.add_argument(
        "--phases", metavar="FILE", help="time per phase: graph_time.py --json, label_coverage, or as texts.py says"
    )
    parser.add_argument("--tolerance", type=percent, default=5.0, metavar="PCT", help="changes up to that are not marked (5)")
    parser.add_argument("--fail-beyond", type=percent, metavar="PCT", help="exit status 1 if a median is worse by more than that")
    parser.add_argument("--tails", action="store_true", help="--fail-beyond counts 99th percentiles, too")
    parser.add_argument("--png", metavar="FOLDER", help="write the plots as pictures, too")
    parser.add_argument("--no-plots", action="store_true", help="the page without plots, which needs no matplotlib")
    given = parser.parse_args(arguments)
    given.folders = given.folders or default_folders()
    for folder in given.folders + (given.against or []):
        if not pathlib.Path(folder).is_dir():
            parser.error(f"{folder} is not a folder")
    for file in filter(None, (given.metrics, given.phases)):
        if not pathlib.Path(file).is_file():
            parser.error(f"{file} is not a file")
    if given.fail_beyond is not None and not given.against:
        parser.error("--fail-beyond needs --against")
    return given


def default_folders():
    """Those of GPUs, the newest first, then those of the host device, whose counts are as good, and what is of none."""
    results = PROFILES / "results"
    found = sorted((p for p in results.iterdir() if p.is_dir()), key=lambda p: p.name.split("_")[::-1], reverse=True)
    return [str(p) for p in sorted(found, key=lambda p: p.name.startswith("host_"))] + [str(results)]


def load(given):
    named, unread = [], []
    for kind in ("metrics", "phases"):
        file = getattr(given, kind)
        try:
            named += [parse.parse_file(file, kind)] if file else []
        except parse.Unreadable as why:
            unread.append((file, str(why)))
    results, more = parse.load(given.folders)
    kinds = [r.kind for r in named]
    return named + [r for r in results if r.kind not in kinds], unread + more


# ------------------------------------------------------------------------------------------------------------ parts of the page


class Pictures:
    """Draws, or leaves out what it cannot draw."""

    def __init__(self, given):
        self.png = given.png
        self.plots = None
        if not given.no_plots:
            import plots  # noqa: PLC0415: the rest works without matplotlib

            self.plots = plots
        if self.png:
            pathlib.Path(self.png).mkdir(parents=True, exist_ok=True)

    def draw(self, name, caption, *data):
        if not self.plots:
            return page.paragraph("(Made without plots.)", "muted")
        return page.figure(self.plots.draw(getattr(self.plots, name), name, *data, png=self.png), caption)


def source(chosen, *programs):
    """Which files a section's numbers come from."""
    found = [
        f"{r.folder}/{pathlib.Path(r.path).name}" + (f" ({r.head['commit']})" if "commit" in r.head else "")
        for r in chosen.results
        if r.program in programs and (choose.device_of(r) == chosen.device or r.program == "metrics")
    ]
    return "From " + ", ".join(found) + "."


def lacking(title, what):
    return page.section(title, page.paragraph(f"No result here has it. {what}", "muted"))


def summary(chosen):
    entries = []
    for r in chosen.find("step_cost", "ratio", batch="standing, unchanged", loop="tight", requests="64"):
        time = chosen.find("step_cost", "prepare + launch", **r.case)[0]
        entries.append(
            (
                f"{page.number(time.value)} µs",
                f"host time of an unchanged step of 64 requests (standing), {page.number(r.value)} × the bare launch",
            )
        )
    for r in chosen.find("back_to_back", "cgr - skeleton", requests="64", batch="unchanged", steps="ahead"):
        entries.append((f"{page.number(r.value)} µs", "GPU time that cgr's own kernels add to a step of 64 requests"))
    for r in chosen.find("attention_cost", "alone over the floor", case="decode bs64 len8k"):
        entries.append((f"{page.number(r.value)} ×", "its floor: attention, 64 decodes at 8k tokens"))
    targets = choose.targets(chosen)
    if targets:
        entries.append((f"{sum(times <= 1 for _, times in targets)} of {len(targets)}", "targets are met"))
    return page.tiles(entries) if entries else ""


def host_section(chosen, pictures):
    panels, rows = choose.host_time(chosen), choose.loops(chosen)
    if not panels and not rows:
        return lacking("Host time of a step", "profiles/step_cost measures it.")
    parts = [
        page.paragraph(
            "What cgr_step_prepare and cgr_step_launch take together, next to the bare launch of the same executable graph, "
            "in turn in one process. Between the two lines is what cgr costs."
        )
    ]
    if panels:
        parts.append(pictures.draw("host_time", "Steps that are waited for one by one. " + source(chosen, "step_cost"), panels))
    if rows:
        parts.append(
            pictures.draw(
                "loops",
                "The same launches in loops whose steps take that long, one ahead, and with 64 MB of the host's memory "
                "touched between steps: the bare launch gets dearer as well.",
                rows,
            )
        )
    return page.section("Host time of a step", *parts)


def attention_section(chosen, peers, pictures):
    rows, names = choose.attention(chosen, peers["attention"])
    if not rows:
        return lacking("Attention", "profiles/attention_cost measures it.")
    notes = "; ".join(f"{case}: {why}" for case, why in peers["attention"]["drawn_otherwise"].items())
    return page.section(
        "Attention next to its floor and its peers",
        page.paragraph(
            "One layer of 32 query heads and 8 KV heads of 128, bf16, pages of 16 tokens. The grey bar goes from the best "
            "peer to cgr alone."
        ),
        pictures.draw(
            "attention",
            f"{source(chosen, 'attention_cost')} Peers: {peers['origin']}, {peers['date']}; "
            f"{peers['attention']['what']}. {notes}. Short cases stay in L2 when they are repeated alone, the peers' too.",
            rows,
            names,
        ),
        *other_shapes(chosen),
    )


def other_shapes(chosen):
    """What attention takes alone for other layers, if that was measured."""
    rows, names = choose.other_shapes(chosen), choose.OF_OTHER_SHAPES
    if not rows:
        return []
    columns = ("decode", *(f"{n}, µs" if n in ("floor", "alone", "cold", "with append") else n for n in names))
    texts = [(case, *(page.number(of[n].value) if n in of else "" for n in names)) for case, of in rows]
    return [
        page.paragraph("Other layers: what a case does not name is as above. The error is that of a head, in percent of it."),
        page.table(columns, texts, range(1, len(columns))),
    ]


def padding_section(chosen, pictures):
    rows, left_out = choose.padding(chosen)
    if not rows:
        return lacking("Padding per bucket", "examples/llama writes it with --metrics FILE; give that as --metrics.")
    more = f" {left_out} keys with less are left out." if left_out else ""
    real, padded = sum(r[2] for r in rows), sum(r[3] for r in rows)
    return page.section(
        "Padding per bucket",
        page.paragraph(
            f"Of {padded:,.0f} tokens that graphs were launched for, {padded - real:,.0f} "
            f"({100 * (padded - real) / padded:.1f}%) were padding. "
            "A key reads: kind of graph, requests, tokens, query length (0: any), variant."
        ),
        pictures.draw(
            "padding",
            "The most wasteful first. Counts: which device ran it does not matter. " + source(chosen, "metrics") + more,
            rows,
        ),
    )


def phases_section(chosen, pictures, named):
    """Of the file that was named on the command line, or of all that have phases."""
    panels = choose.phases(chosen, named)
    if not panels:
        return lacking(
            "Time per phase",
            "profiles/README.md tells how to get it; give it as --phases.",
        )
    files = ", ".join(f"{p.result.folder}/{pathlib.Path(p.result.path).name}" for p in panels)
    more = "Phases that run alongside each other count each in full. "
    return page.section("Time per phase", pictures.draw("phases", f"{more}From {files}.", panels))


def nodes_section(chosen, pictures):
    data = choose.own_nodes(chosen)
    if not any(data):
        return lacking("Prologue, planner and epilogue", "profiles/back_to_back and profiles/kernel_cost measure them.")
    return page.section(
        "Prologue, planner, fetch and epilogue",
        page.paragraph(
            "GPU time of cgr's own nodes: in steps prepared ahead, back to back, next to the same graph with empty kernels in "
            "their place; each by itself in such a step; and as a chain of one kernel, less an empty node. In a step they "
            "overlap with what runs alongside them."
        ),
        pictures.draw("own_nodes", source(chosen, "back_to_back", "kernel_cost"), *data),
    )


def planners_section(chosen, peers, pictures):
    series = choose.planners(chosen)
    if not series:
        return lacking("Planners", "profiles/fa3_cost, flashinfer_cost, flashmla_cost and planner_cost measure them.")
    rows = [
        (r["planner"], r["where"], page.number(r["batch_1"]), page.number(r["batch_256"])) for r in peers["planning"]["rows"]
    ]
    return page.section(
        "Planners",
        page.paragraph(
            "cgr's planner, and those that plan for other projects' kernels: a node of a graph by itself, beyond an empty one."
        ),
        pictures.draw("planners", source(chosen, "planner_cost", "fa3_cost", "flashinfer_cost", "flashmla_cost"), series, 4.0),
        page.paragraph(f"The projects' own planners, {peers['origin']}, {peers['date']}:"),
        page.table(("planner", "where", "batch 1, µs", "batch 256, µs"), rows, (2, 3)),
    )


def targets_section(chosen):
    found = choose.targets(chosen)
    if not found:
        return ""
    missed = [
        (f"{times:.2f} ×", page.number(r.value), page.number(r.target), page.unit_of(r), r.program, f"{r.name()}: {r.metric}")
        for r, times in found
        if times > 1
    ]
    text = f"{len(found) - len(missed)} of {len(found)} numbers that have a target meet it."
    columns = ("of the target", "measured", "target", "unit", "program", "what")
    return page.section("Targets", page.paragraph(text), page.table(columns, missed, (0, 1, 2)) if missed else "")


def changes_section(changes, tolerance, before):
    if not changes:
        return page.section("What has changed", page.paragraph("The two sets have no number in common."))
    verdicts = [c.verdict(tolerance) for c in changes]
    text = (
        f"Against {', '.join(before)}: {len(changes)} numbers are in both. Beyond {tolerance:g}%, "
        f"{verdicts.count('worse')} are worse, {verdicts.count('better')} are better, and "
        f"{verdicts.count('moved')} that are neither have moved. Two runs are never alike: "
        "compare times of one machine, and look at ratios before times."
    )
    beyond = [c for c, v in zip(changes, verdicts) if v]
    within = [c for c, v in zip(changes, verdicts) if not v]
    return page.section(
        "What has changed",
        page.paragraph(text),
        page.changes_table(beyond[:40], tolerance),
        page.details(f"{len(beyond) - 40} more beyond it", page.changes_table(beyond[40:], tolerance)) if beyond[40:] else "",
        page.details(f"{len(within)} within {tolerance:g}%", page.changes_table(within, tolerance)) if within else "",
    )


def unread_section(unread):
    if not unread:
        return ""
    return (
        '<div class="alarm">'
        + page.paragraph("Not read, and missing from this page:")
        + page.table(("file", "why"), unread)
        + "</div>"
    )


def numbers_section(results, here):
    return page.section(
        "Where it comes from",
        page.provenance_table(results, here),
        *(
            page.details(f"{r.folder}/{pathlib.Path(r.path).name}: {len(r.records)} numbers", page.records_table(r))
            for r in results
        ),
    )


def make(given, results, unread, changes):
    chosen, pictures = choose.Chosen(results), Pictures(given)
    peers = choose.read_peers(PROFILES / "peers.json")
    here = pathlib.Path(given.folders[0]).name
    body = "\n".join(
        [
            unread_section(unread),
            summary(chosen),
            changes_section(changes, given.tolerance, [pathlib.Path(f).name for f in given.against]) if given.against else "",
            host_section(chosen, pictures),
            nodes_section(chosen, pictures),
            phases_section(chosen, pictures, given.phases),
            attention_section(chosen, peers, pictures),
            planners_section(chosen, peers, pictures),
            padding_section(chosen, pictures),
            targets_section(chosen),
            numbers_section(results, here),
        ]
    )
    dates = sorted({r.head["date"] for r in results if "date" in r.head and choose.device_of(r) == chosen.device})
    when = " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "at an unknown date"
    subtitle = f"{chosen.device or 'no device'}; measured {when}"
    return page.document("cgr: what is measured", subtitle, body)


def write_json(file, results, unread, changes):
    with open(file, "w", encoding="utf-8") as out:
        json.dump(
            {
                "results": [dataclasses.asdict(r) for r in results],
                "unread": [list(u) for u in unread],
                "changes": [dataclasses.asdict(c) for c in changes],
            },
            out,
            indent=1,
        )


def main(arguments):
    given = options(arguments)
    results, unread = load(given)
    changes = []
    if given.against:
        before, more = parse.load(given.against)
        unread += more
        changes = compare.compare(before, results)
    for path, why in unread:
        print(f"{path} is not read: {why}", file=sys.stderr)
    if not results:
        print(f"no results in {', '.join(given.folders)}", file=sys.stderr)
        return 2
    try:
        if given.json:
            write_json(given.json, results, unread, changes)
        text = make(given, results, unread, changes)
        pathlib.Path(given.out).write_text(text, encoding="utf-8")
    except ModuleNotFoundError as error:
        print(f"{error}: profiles/report/run fetches it, --no-plots does without", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"the page cannot be written: {error}", file=sys.stderr)
        return 2
    print(f"{given.out}: {sum(len(r.records) for r in results)} numbers of {len(results)} files, {len(text) // 1024} KB")
    if given.against and not changes:
        print("the two sets have no number in common", file=sys.stderr)
        return 1 if given.fail_beyond is not None else 0
    if given.against:
        print(compare.table(changes, given.tolerance))
    if given.fail_beyond is not None and (bad := compare.regressions(changes, given.fail_beyond, given.tails)):
        print(f"{len(bad)} numbers are worse by more than {given.fail_beyond:g}%", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
