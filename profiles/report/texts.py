"""The records of texts that are not tables of a program: the example, metrics, tests and checkers, JSON, phases of a replay."""

import contextlib
import csv
import io
import json
import re

from tables import NUMBER, Record, Unreadable, number_in, read_head, read_tables

# ------------------------------------------------------------------------------------------------------ what the example prints

STEP_ROW = re.compile(
    rf"^(decode|prefill|mixed) +(\S+) +(\d+) +(\d+) +(\d+) +({NUMBER}) +({NUMBER}) +({NUMBER}) +({NUMBER}) +(\d+)$"
)
GRAPH_ROW = re.compile(  # the query length is missing before 0.11
    rf"^(full|piecewise) +(\d+) +(\d+)(?: +(\d+|mixed))? +(\d+) +({NUMBER}) +(\d+) +({NUMBER}) +([a-z ]+)$", re.I
)
RATE = re.compile(
    r"^(prompt|generated) +([\d,]+) tokens? +([\d,]+)/s"
    r"(?: +(first|between) tokens? (?:after )?([\d.]+) ms(?: \(p99 ([\d.]+) ms\))?)?$"
)


def llama_step(case, match):
    kind = {**case, "step": match[1], "graph": match[2].lower()}
    numbers = [float(g) for g in match.groups()[2:]]
    return [
        Record("llama", kind, "steps", "count", numbers[0], better=""),
        Record("llama", kind, "real tokens", "tokens", numbers[1], better=""),
        Record("llama", kind, "padded tokens", "tokens", numbers[2], better=""),
        Record("llama", kind, "prepare", "us", numbers[3], numbers[4]),
        Record("llama", kind, "launch", "us", numbers[5], numbers[6]),
        Record("llama", kind, "bytes staged", "bytes", numbers[7]),
    ]


def llama_graph(case, match, uniform):
    which = "decode" if uniform else "mixed"
    kind = {**case, "graph": f"{match[1].lower()} {which}", "requests": match[2], "tokens": match[3]}
    return [
        Record("llama", kind, "nodes", "count", float(match[5]), better=""),
        Record("llama", kind, "capture", "ms", float(match[6])),
        Record("llama", kind, "replays", "count", float(match[7]), better=""),
        Record("llama", kind, "mean requests", "requests", float(match[8]), better=""),
    ]


def llama_rate(case, match):
    """A line of the summary: tokens, their rate, and the time to the first token or between tokens."""
    case, tokens = {**case, "of": match[1]}, float(match[2].replace(",", ""))
    found = [
        Record("llama", case, "tokens", "tokens", tokens, better=""),
        Record("llama", case, "tokens per second", "1/s", float(match[3].replace(",", "")), better="higher"),
    ]
    if match[4]:
        metric = "time to the first token" if match[4] == "first" else "time between tokens"
        found.append(Record("llama", case, metric, "ms", float(match[5]), float(match[6]) if match[6] else None))
    return found


def parse_llama(text):
    """Steps, reasons and graphs of one or more runs; a run is named by its mode, or is the n-th one."""
    found, case, runs = [], {}, 0
    seen = set()
    for line in text.splitlines():
        if mode := re.match(r"== --mode (\S+)$", line):
            case, seen = {"mode": mode[1]}, set()
        elif line.startswith(("A step cost the host", "cgr ")) and "mode" not in case:
            runs, seen = runs + 1, set()
            case = {"run": str(runs)} if runs > 1 else {}
        elif rate := re.search(r"(\d+) tokens(?: for \d+ requests)? in .*?: (\d+) tokens(?:/s| per second)", line):
            found.append(Record("llama", dict(case), "tokens generated", "tokens", float(rate[1]), better=""))
            found.append(Record("llama", dict(case), "tokens per second", "1/s", float(rate[2]), better="higher"))
        elif summary := RATE.match(line):
            found += llama_rate(case, summary)
        elif line.startswith("host time per step: "):
            for how, us in re.findall(r"(replayed|eager|bare launch) ([\d.]+) us", line):
                found.append(Record("llama", {**case, "step": how}, "host time per step", "us", float(us)))
        elif step := STEP_ROW.match(line):
            found += llama_step(case, step)
        elif reasons := re.match(r"  (full|piecewise|eager) +(\w+ \d+(?:, [\w ]+ \d+)*)$", line):
            for name, count in re.findall(r"([a-z][\w ]*?) (\d+)(?:,|$)", reasons[2]):
                found.append(
                    Record("llama", {**case, "graph": reasons[1], "reason": name}, "steps", "count", float(count), better="")
                )
        elif graph := GRAPH_ROW.match(line):
            # Without a query length: the graph of a decode batch comes before the mixed one of the same size.
            sized = (graph[1], graph[2], graph[3])
            uniform = graph[4] != "mixed" if graph[4] else graph[2] == graph[3] and sized not in seen
            found += llama_graph(case, graph, uniform)
            seen.add(sized)
    return found


def parse_llama_check(text):
    found = []
    for mode, steps, requests, early, tokens in re.findall(
        r"^(?:Graph mode ([\w -]+): )?(\d+) steps .*?, (\d+) requests \((\d+) left early\), "
        r"(\d+) tokens: every token and logit has",
        text,
        re.M,
    ):
        case = {"mode": mode or "default"}
        for metric, value in (
            ("steps", steps),
            ("requests", requests),
            ("left early", early),
            ("tokens with the same bits", tokens),
        ):
            found.append(Record("llama_check", case, metric, "count", float(value), better=""))
    return found


def parse_metrics(text):
    """The counters and gauges of cgr_runtime_metrics, without its histograms' buckets."""
    found = []
    for name, labels, value in re.findall(rf"^(cgr_\w+?)(?:\{{(.*)\}})? ({NUMBER}(?:e[-+]?\d+)?)$", text, re.M):
        if name.endswith("_bucket") or name == "cgr_info":
            continue
        case = {k: re.sub(r"\\(.)", r"\1", v) for k, v in re.findall(r'(\w+)="((?:\\.|[^"\\])*)"', labels)}
        unit = "s" if name.endswith(("_seconds", "_seconds_sum")) else "bytes" if "bytes" in name else "count"
        found.append(Record("metrics", case, name, unit, float(value), better=""))
    return found


# ------------------------------------------------------------------------------------------------------------- tests and checks


def parse_tests(text):
    """What the sums "N passed, M failed, K skipped" say: those of the whole file, or of its parts if it has several."""
    lines = re.findall(r"^(?:(.*): )?(\d+) passed, (\d+) failed, (\d+) skipped(?: \((.*)\))?$", text, re.M)
    lines = [line for line in lines if not line[0].startswith("== ")]
    found = []
    for part, (before, passed, failed, skipped, after) in enumerate(lines, 1):
        case = {"part": before or after or str(part)} if len(lines) > 1 else {}
        for metric, value, better in (("passed", passed, ""), ("failed", failed, "lower"), ("skipped", skipped, "")):
            found.append(Record("tests", case, metric, "count", float(value), better=better))
    errors = re.findall(r"(?:ERROR SUMMARY: (\d+) errors|RACECHECK SUMMARY: (\d+) hazards)", text)
    if errors:
        found.append(Record("tests", {}, "programs under a checker", "count", float(len(errors)), better=""))
        found.append(Record("tests", {}, "findings of the checker", "count", float(sum(int(a or b) for a, b in errors))))
    return found


def parse_runs(text):
    """A line for each run of the tests or of a checker."""
    found, have = [], {}
    for row in csv.DictReader(io.StringIO(text)):
        case = {name: row[name] for name in ("date", "device", "commit", "suite")}
        have[tuple(case.values())] = part = have.get(tuple(case.values()), 0) + 1
        if part > 1:
            case["part"] = str(part)
        for metric, better in (("passed", ""), ("failed", "lower"), ("skipped", "")):
            found.append(Record("runs", case, metric, "count", float(row[metric]), better=better))
    return found


def parse_repeats(text):
    return [
        Record("repeats", {"test": name}, "times passed", "count", float(count), better="")
        for count, name in re.findall(r"^ *(\d+) \[ +OK \] (\S+)$", text, re.M)
    ]


def parse_simulation(text):
    return [
        Record("simulation", {}, name, "s" if name == "seconds" else "count", float(value), better="")
        for name, value in re.findall(rf"^([a-z][a-z ,'-]*?) {{2,}}({NUMBER})$", text, re.M)
    ]


def parse_edits(text):
    match = re.search(r"^(\d+) edits, (\d+) steps, (\d+) lost, (\d+) abandoned", text, re.M)
    return [
        Record("standing_edits", {}, metric, "count", float(value), better="")
        for metric, value in zip(("edits", "steps", "lost", "abandoned"), match.groups() if match else ())
    ]


def parse_coverage(text):
    return [
        Record("coverage", {"folder": folder}, "lines covered", "%", float(share), better="higher")
        for folder, share in re.findall(rf"^(\S+) +\d+ of +\d+ lines +({NUMBER})%$", text, re.M)
    ]


@contextlib.contextmanager
def as_json():
    """Turns errors about what a JSON text lacks into Unreadable."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from error


def numbers_below(tree, way=()):
    """Every number of a JSON tree with the names that lead to it; of lists only those of objects."""
    if isinstance(tree, bool):
        return
    if isinstance(tree, (int, float)):
        yield way, float(tree)
    elif isinstance(tree, dict):
        for name, part in tree.items():
            yield from numbers_below(part, way + (str(name),))
    elif isinstance(tree, list):
        for i, part in enumerate(tree):
            if isinstance(part, dict):
                yield from numbers_below(part, way + (str(part.get("name", i)),))


def parse_transformers(text):
    """How far the example's logits are from those of transformers."""
    with as_json():
        numbers = list(numbers_below(json.loads(text).get("results", {})))
    return [
        Record("transformers", {"of": ", ".join(way[:-1])}, way[-1], "", value, better="lower" if "error" in way[-1] else "")
        for way, value in numbers
        if "shape" not in way
    ]


OUTSIDE = "outside of graphs"


def phase_record(source, phase, us, p99=None, share=None):
    case = {"source": source, "phase": phase}
    found = [Record("phases", case, "time of a replay", "us", float(us), None if p99 is None else float(p99))]
    return found + ([Record("phases", case, "share", "%", 100.0 * float(share), better="")] if share is not None else [])


def parse_phases(text):
    """Time per phase of a replay: what profiles/graph_time.py --json writes, of each graph, or from anywhere else

        {"source": ..., "phases": [{"phase": ..., "us_median": ..., "us_p99": ..., "share": ...}, ...]}

    of which only phase and us_median are needed; a share is a fraction of the whole, 0 to 1.
    """
    with as_json():
        return phases_of(json.loads(text))


def phases_of(tree):
    found = []
    titles = [graph["title"] for graph in tree.get("graphs", ())]
    for i, graph in enumerate(tree.get("graphs", ())):
        source = graph["title"] + (f" ({titles[: i + 1].count(graph['title'])})" if titles.count(graph["title"]) > 1 else "")
        for phase, of in graph["phases"].items():
            found += phase_record(source, phase, of["median_us"], of["p99_us"], of["share"])
    for phase in tree.get("phases", ()):
        found += phase_record(
            str(tree.get("source", "")), phase["phase"], phase["us_median"], phase.get("us_p99"), phase.get("share")
        )
    return found


def parse_label_coverage(text):
    """The table of profiles/label_coverage: GPU time of a replay by phase, by way of CUPTI; and what stands below it."""
    found = []
    source = read_head(text).get("step", "")
    for table in read_tables(text):
        if table.columns[:1] == ["phase"] and "us" in table.columns:
            for row in table.rows:
                cells = dict(zip(table.columns, row))
                us, share, nodes = (number_in(cells.get(c, "")) for c in ("us", "share", "nodes"))
                if us:
                    found += phase_record(source, cells["phase"], us[0], None, share[0] / 100 if share else None)
                if us and nodes:
                    found.append(Record("phases", dict(found[-1].case), "nodes", "count", nodes[0], better=""))
    for name, better, pattern in (
        (OUTSIDE, "lower", rf"^# outside of graphs: .*?, ({NUMBER}) us for each replay$"),
        ("covered by labels", "higher", rf"^# coverage: ({NUMBER})% "),
    ):
        if number := re.search(pattern, text, re.M):
            unit = "us" if name == OUTSIDE else "%"
            found.append(Record("phases", {"source": source}, name, unit, float(number[1]), better=better))
    return found
