"""Parses the output of the programs of profiles/ and of the tests, as kept under profiles/results/, into records.

A record is one number of one file:

    program   who printed it: "step_cost"
    case      what was measured, one entry per label column: {"requests": "64", "batch": "unchanged", "loop": "tight"}
    metric    the column: "prepare + launch"
    unit      "us", "ms", "x" (a ratio), "%", "bytes", "count", ...
    value     the number: a median where the program prints one
    p99       the number in brackets, None without one; target: what it should be at most, None without one
    better    "lower", "higher", or "" for numbers that are neither good nor bad

Older formats of the same programs give the same records, as far as they hold the same numbers. Needs only Python 3.10.
"""

import contextlib
import dataclasses
import json
import pathlib
import re

NUMBER = r"[-+]?\d+(?:\.\d+)?"
CELL = re.compile(rf"^({NUMBER})([x%]?)(?: \(({NUMBER})(%?)\))?$")
QUANTILES = re.compile(rf"^({NUMBER}), ({NUMBER}), {NUMBER}$")  # median, p99, p99.9


class Unreadable(Exception):
    """A file that holds nothing known; the text says why."""


@dataclasses.dataclass
class Record:
    program: str
    case: dict
    metric: str
    unit: str
    value: float
    p99: float | None = None
    target: float | None = None
    better: str = "lower"

    def key(self):
        return (self.program, tuple(self.case.items()), self.metric)

    def name(self):
        return ", ".join(f"{k} {v}" if v.replace(".", "").isdigit() else v for k, v in self.case.items() if v)


@dataclasses.dataclass
class Result:
    path: str
    folder: str
    kind: str  # the file's name without its date: files of one kind are compared
    program: str
    head: dict
    records: list


@dataclasses.dataclass
class Table:
    title: str
    columns: list
    rows: list


# ---------------------------------------------------------------------------------------------------------- the parts of a file


def read_head(text):
    """The lines "# device: ..." of a file; the first of a name counts."""
    head = {}
    for name, value in re.findall(r"^# ([\w ,.]+): (.*)$", text, re.M):
        head.setdefault(name, value.strip())
    return head


def read_tables(text):
    """The Markdown tables; a table's title is the last heading before it. Rows as wide as the head, or Unreadable."""
    tables, title, current = [], "", None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            title, current = line[3:], None
        elif line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if current is None:
                current = Table(title, cells, [])
                tables.append(current)
            elif all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                continue
            elif len(cells) != len(current.columns):
                raise Unreadable(f"line {number} has {len(cells)} cells, its table {len(current.columns)}")
            else:
                current.rows.append(cells)
        elif not line.startswith("#"):
            current = None
    return tables


def number_in(cell):
    """(value, what is in brackets, what follows it: "x", "%" or "") of a cell; None if it is no number."""
    if quantiles := QUANTILES.match(cell):
        return float(quantiles[1]), float(quantiles[2]), ""
    match = CELL.match(cell)
    return (float(match[1]), float(match[3]) if match[3] else None, match[2]) if match else None


# --------------------------------------------------------------------------------------------------------- programs with tables


@dataclasses.dataclass
class Spec:
    """How the tables of a program are read. Columns that are not named here are times in microseconds, lower is better."""

    labels: tuple = ()
    defaults: dict = dataclasses.field(default_factory=dict)  # labels that an older format has not
    rename: dict = dataclasses.field(default_factory=dict)
    target: str = ""  # the column that the column "target" (or "goal ...") is for
    titled: bool = False  # the table's title is part of the case
    apart: str = ""  # tables whose titles begin so are of another kind: it is the first label of their case
    p99: bool = True  # what is in brackets is one


SPECS = {
    "step_cost": Spec(
        ("requests", "batch", "loop"),
        {"batch": "unchanged", "loop": "tight"},
        {"both": "prepare + launch"},
        "ratio",
        apart="Capture",
    ),
    "back_to_back": Spec(("requests", "batch", "steps"), target="cgr - skeleton"),
    "kernel_cost": Spec(("step",)),
    "attention_cost": Spec(
        ("case",),
        {},
        {
            "us per layer": "in steps",
            "in steps: us per layer": "in steps",
            "floor us": "floor",
            "alone us": "alone",
            "cold us": "cold",
            "with append us": "with append",
        },
        "alone",
        apart="Other shapes",
    ),
    "flashinfer_attention": Spec(("case",), {}, {"floor us": "floor"}),
    "planner_cost": Spec(("batch",), {}, {"us for 4 plan classes": "planner"}),
    "fa3_cost": Spec(("decodes",), {}, {"upstream, us": "upstream", "vllm, us": "vllm"}, "upstream"),
    "flashinfer_cost": Spec(("plan",), {}, {"us": "planner"}, "planner"),
    "flashmla_cost": Spec(("requests", "lengths"), target="FlashMLA, 132 parts"),
    "fork_cost": Spec(("forks", "side streams")),
    "wait_cost": Spec(("mode", "step, ms")),
    "mixed_cost": Spec(("mode, keys", "step"), target="prepare + launch"),
    "self_test_cost": Spec(("seed", "layers")),
    "tracing_cost": Spec(("ns a step",), target="median"),
    "nvtx_cost": Spec(("what", "config.nvtx"), titled=True),
    "calibrate": Spec(("KV tiles", "KV tiles per part", "kernel kind", "variant", "head dim", "fit over"), titled=True, p99=False),
    "timing_cost": Spec(
        ("timing", "the clock"),
        {},
        {"us of a step on the device": "step on the device", "us of prepare and launch": "prepare + launch", "ns": "clock, ns"},
    ),
}

# What is not a time in microseconds: name of the column, unit, what is better.
OTHERS = {
    "bytes staged": ("bytes", "lower"),
    "bytes": ("bytes", "lower"),
    "device bytes each": ("bytes", "lower"),
    "ms in all": ("ms", "lower"),
    "ms each": ("ms", "lower"),
    "ms": ("ms", "lower"),
    "ratio": ("x", "lower"),
    "against the line": ("x", "lower"),
    "over the floor": ("x", "lower"),
    "nodes": ("count", ""),
    "nodes each": ("count", ""),
    "graphs": ("count", ""),
    "graphs each": ("count", ""),
    "keys": ("count", ""),
    "width": ("count", ""),
    "late": ("count", ""),
    "layers": ("count", ""),
    "steps": ("count", ""),
    "findings": ("count", "lower"),
    "floor": ("us", ""),
    "skeleton": ("us", ""),
    "least": ("us", ""),
    "bare": ("us", ""),
    "bare launch": ("us", ""),
    "skeleton - bare": ("us", ""),
    "least - skeleton": ("us", ""),
    "the same launches alone": ("us", ""),
    "model": ("us", ""),
    "largest error": ("%", "lower"),
    "lse error": ("", "lower"),
    "GB/s": ("GB/s", "higher"),
    "TFLOP/s": ("TFLOP/s", "higher"),
}


def measure(column, suffix, around):
    """Unit of a column, and what is better; `around` is what stands at the table, where the column itself does not say it."""
    if column in OTHERS:
        return OTHERS[column]
    if suffix:
        return (suffix, "lower")
    if re.search(r"\bms\b", column):
        return ("ms", "lower")
    if "bytes" in column:
        return ("bytes", "lower")
    if re.search(r"\bns\b", column) or re.search(r"\bns\b|\bnanoseconds\b", around):
        return ("ns", "lower")
    return ("us", "lower")


def is_target(column):
    return column.startswith(("target", "goal"))


def labels_of(spec, table):
    """The columns that say what a row is for: those that the program is known to have, or all that hold a word."""
    named = [c for c in table.columns if c in spec.labels]
    if named:
        return named
    words = [c for i, c in enumerate(table.columns) if any(number_in(r[i]) is None and r[i] for r in table.rows)]
    return words or table.columns[:1]


def case_of(spec, table, labels, cells):
    """What a row is for; its labels are in the order of the specification, so that older formats have the same."""
    named = {label: cells[label] for label in labels}
    if spec.apart and table.title.startswith(spec.apart):
        return {"table": spec.apart.lower()} | named
    all_labels = spec.defaults | named
    order = sorted(all_labels, key=lambda label: spec.labels.index(label) if label in spec.labels else len(spec.labels))
    return ({"table": table.title} if spec.titled else {}) | {label: all_labels[label] for label in order}


def records_of_row(program, spec, table, labels, row):
    cells = dict(zip(table.columns, row))
    case = case_of(spec, table, labels, cells)
    target = next((number_in(cell) for column, cell in cells.items() if is_target(column)), None)
    found, before = [], ""
    for column, cell in zip(table.columns, row):
        number = number_in(cell)
        if column in labels or is_target(column) or number is None:
            continue
        value, bracket, suffix = number
        metric = spec.rename.get(column, re.sub(r" of \d+ blocks$", "", column))
        # An attention row says twice what it is over the floor: of the time in the column before it.
        if column == "over the floor":
            metric = f"{before} over the floor"
        unit, better = measure(column if column in OTHERS else metric, suffix, f"{table.title} {table.columns[0]}")
        found.append(
            Record(
                program,
                dict(case),
                metric,
                unit,
                value,
                bracket if spec.p99 else None,
                target[0] if target and metric == spec.target else None,
                better,
            )
        )
        before = metric
    return found


def older_step_cost(table):
    """The first format: one row for both, the unchanged batch and the one that grows."""
    appending = {
        "both, 1/16 of rows append a page": "prepare + launch",
        "bytes": "bytes staged",
        "ratio, appending": "ratio",
        "bare launch": "bare launch",
        "requests": "requests",
    }
    first = [i for i, c in enumerate(table.columns) if c not in appending or c in ("bare launch", "requests")]
    second = [i for i, c in enumerate(table.columns) if c in appending]
    return [
        ("unchanged", Table(table.title, [table.columns[i] for i in first], [[r[i] for i in first] for r in table.rows])),
        (
            "1/16 append a page",
            Table(table.title, [appending[table.columns[i]] for i in second], [[r[i] for i in second] for r in table.rows]),
        ),
    ]


def parse_tables(program, text):
    tables = read_tables(text)
    if not any(t.rows for t in tables):
        raise Unreadable("no table with rows")
    spec, found = SPECS.get(program, Spec(titled=len(tables) > 1)), []
    titles = {}
    for table in tables:
        parts = [(None, table)]
        if program == "step_cost" and "ratio, appending" in table.columns:
            parts = older_step_cost(table)
        if spec.titled:  # several tables under a heading
            titles[table.title] = titles.get(table.title, 0) + 1
            table.title += f" ({titles[table.title]})" if titles[table.title] > 1 else ""
        for batch, part in parts:
            use = dataclasses.replace(spec, defaults=spec.defaults | {"batch": batch}) if batch else spec
            labels = labels_of(use, part)
            for row in part.rows:
                found += records_of_row(program, use, part, labels, row)
    return found


def parse_kernel_cost(text):
    """Also the empty node whose time has been subtracted from all others."""
    program = re.search(r"^# program: (?:profiles/)?(\w+)$", text, re.M)
    found = parse_tables(program[1] if program else "kernel_cost", text)
    node = re.search(rf"^# node: ({NUMBER}) us", text, re.M)
    return found + (
        [Record(found[0].program, {"step": "an empty node"}, "node", "us", float(node[1]), better="")] if node else []
    )


def parse_timing_cost(text):
    """Also what reading costs, which stands below the tables."""
    read = re.search(rf"^Reading the spans of a step: ({NUMBER}) us", text, re.M)
    return parse_tables("timing_cost", text) + (
        [Record("timing_cost", {}, "reading the spans of a step", "us", float(read[1]))] if read else []
    )


# ------------------------------------------------------------------------------------------------------ what the example prints

STEP_ROW = re.compile(
    rf"^(decode|prefill|mixed) +(\S+) +(\d+) +(\d+) +(\d+) +({NUMBER}) +({NUMBER}) +({NUMBER}) +({NUMBER}) +(\d+)$"
)
GRAPH_ROW = re.compile(rf"^(full|piecewise) +(\d+) +(\d+) +(\d+) +({NUMBER}) +(\d+) +({NUMBER}) +(\w+)$", re.I)


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
        Record("llama", kind, "nodes", "count", float(match[4]), better=""),
        Record("llama", kind, "capture", "ms", float(match[5])),
        Record("llama", kind, "replays", "count", float(match[6]), better=""),
        Record("llama", kind, "mean requests", "requests", float(match[7]), better=""),
    ]


def parse_llama(text):
    """Steps, reasons and graphs of one or more runs; a run is named by its mode, or is the n-th one."""
    found, case, runs = [], {}, 0
    seen = set()
    for line in text.splitlines():
        if mode := re.match(r"== --mode (\S+)$", line):
            case, seen = {"mode": mode[1]}, set()
        elif line.startswith("A step cost the host") and "mode" not in case:
            runs, seen = runs + 1, set()
            case = {"run": str(runs)} if runs > 1 else {}
        elif rate := re.search(r"(\d+) tokens(?: for \d+ requests)? in .*?: (\d+) tokens(?:/s| per second)", line):
            found.append(Record("llama", dict(case), "tokens generated", "tokens", float(rate[1]), better=""))
            found.append(Record("llama", dict(case), "tokens per second", "1/s", float(rate[2]), better="higher"))
        elif step := STEP_ROW.match(line):
            found += llama_step(case, step)
        elif reasons := re.match(r"  (full|piecewise|eager) +(\w+ \d+(?:, [\w ]+ \d+)*)$", line):
            for name, count in re.findall(r"([a-z][\w ]*?) (\d+)(?:,|$)", reasons[2]):
                found.append(
                    Record("llama", {**case, "graph": reasons[1], "reason": name}, "steps", "count", float(count), better="")
                )
        elif graph := GRAPH_ROW.match(line):
            # The graph of a decode batch comes before the mixed one of the same size.
            sized = (graph[1], graph[2], graph[3])
            found += llama_graph(case, graph, graph[2] == graph[3] and sized not in seen)
            seen.add(sized)
    return found


def parse_llama_check(text):
    found = []
    for mode, steps, requests, early, tokens in re.findall(
        r"^(?:Graph mode ([\w-]+): )?(\d+) steps .*?, (\d+) requests \((\d+) left early\), "
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


# ------------------------------------------------------------------------------------------------------------ files and folders

# By the program that the file names, or by the stem of its own name, the longest that fits; what is not here needs a line
# "# program: profiles/..." and tables.
PARSERS = {
    "llama_check": parse_llama_check,
    "llama": parse_llama,
    "metrics": parse_metrics,
    "phases": parse_phases,
    "graph_time": parse_phases,
    "label_coverage": parse_label_coverage,
    "tests": parse_tests,
    "memcheck": parse_tests,
    "racecheck": parse_tests,
    "synccheck": parse_tests,
    "sanitizers": parse_tests,
    "two_gpus": parse_tests,
    "planner_20000": parse_repeats,
    "simulation": parse_simulation,
    "standing_edits": parse_edits,
    "coverage": parse_coverage,
    "transformers": parse_transformers,
    "timing_cost": parse_timing_cost,
    "kernel_cost": parse_kernel_cost,
    "planner_cost": parse_kernel_cost,
    "fa3_cost": parse_kernel_cost,
    "flashinfer_cost": parse_kernel_cost,
    "flashmla_cost": parse_kernel_cost,
}
SUFFIXES = (".txt", ".json", ".prom")


def parse_text(stem, text):
    """(program, records) of a file's text, or Unreadable."""
    line = re.search(r"^# program: (?:profiles/)?(?:peers/)?(\w+)(?:\.py)?$", text, re.M)
    program = line[1] if line else None
    by_name = max((name for name in PARSERS if stem.startswith(name)), key=len, default=None)
    kind = program if program in PARSERS or program in SPECS else by_name or program
    if kind is None:
        raise Unreadable('neither its name nor a line "# program: profiles/..." says what it is')
    found = PARSERS[kind](text) if kind in PARSERS else parse_tables(kind, text)
    if not found:
        raise Unreadable("holds none of the numbers that are expected of its kind")
    return (program or kind, found)


def head_of(text, place):
    """Device, date and so on; those of a JSON file have other names. `place` is the file's, whose names may hold the date."""
    head = read_head(text)
    if text.startswith("{"):
        try:
            tree = json.loads(text)
        except ValueError:
            return head
        names = {"date": "date", "commit": "commit", "device_name": "device", "build": "library", "source": "source"}
        head |= {to: str(tree[name])[: 10 if to == "date" else None] for name, to in names.items() if name in tree}
    if "device" not in head and (info := re.search(r'^cgr_info\{.*device="([^"]*)"', text, re.M)):
        head["device"] = info[1]
    if "date" not in head and (date := re.search(r"\d{4}-\d\d-\d\d", place)):
        head["date"] = date[0]
    return head


def kind_of(path):
    return re.sub(r"_?\d{4}-\d\d-\d\d", "", pathlib.Path(path).stem)


def parse_file(path, kind=None):
    """`kind` is the file's, whatever it is called."""
    path = pathlib.Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable("not a text") from error
    program, found = parse_text(kind or path.stem, text)
    head = head_of(text, f"{path.parent.name}/{path.name}")
    return Result(str(path), path.parent.name or ".", kind or kind_of(path), program, head, found)


def load(folders):
    """The results of folders, and what could not be read as [(path, why)].

    Of several files of one kind the one in the folder that comes first counts, so that later folders fill what it lacks; in one
    folder the newest by the date in its name.
    """
    results, unread, have = [], [], set()
    for path in [p for f in folders for p in sorted(sorted(pathlib.Path(f).iterdir(), reverse=True), key=kind_of)]:
        if path.is_dir() or kind_of(path) in have:
            continue
        try:
            if path.suffix not in SUFFIXES:
                raise Unreadable(f"ends in {path.suffix or 'nothing'}, expected one of {', '.join(SUFFIXES)}")
            results.append(parse_file(path))
            have.add(kind_of(path))
        except Unreadable as why:
            unread.append((str(path), str(why)))
    return results, unread
