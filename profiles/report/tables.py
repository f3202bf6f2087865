"""The parts of a kept file, and the records of its Markdown tables. What a record is: parse.py."""

import dataclasses
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
