"""The parts of a kept file, and the records of its Markdown tables. parse.py says what a record is."""

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
    text: str = ""  # the cell as it was printed

    def key(self):
        return (self.program, tuple(self.case.items()), self.metric)

    def name(self):
        return ", ".join(f"{k} {v}" if v.replace(".", "").isdigit() else v for k, v in self.case.items() if v)


@dataclasses.dataclass
class Table:
    title: str
    head: dict  # the "# name: value" lines before it
    columns: list
    rows: list


def read_tables(text):
    """The Markdown tables; a table's title is the last heading before it. Rows as wide as the head, or Unreadable."""
    head, tables, title, current = {}, [], "", None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            title, current = line[3:], None
        elif named := re.match(r"# ([\w ,.]+): (.*)$", line):
            head = head | {named[1]: named[2].strip()}
        elif line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if current is None:
                current = Table(title, head, cells, [])
                tables.append(current)
            elif all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                continue
            elif len(cells) != len(current.columns):
                raise Unreadable(f"line {number} has {len(cells)} cells, its table {len(current.columns)}")
            else:
                current.rows.append(cells)
        else:
            current = None
    return tables


def number_in(cell):
    """(value, what is in brackets, what follows it: "x", "%" or "") of a cell; None if it is no number."""
    if quantiles := QUANTILES.match(cell):
        return float(quantiles[1]), float(quantiles[2]), ""
    match = CELL.match(cell)
    return (float(match[1]), float(match[3]) if match[3] else None, match[2]) if match else None


@dataclasses.dataclass
class Spec:
    """How the tables of a program are read. Columns that are not named here are times in microseconds, lower is better."""

    labels: tuple = ()
    rename: dict = dataclasses.field(default_factory=dict)
    target: str = ""  # the column that the column "target" (or "goal ...") is for
    titled: bool = False  # the table's title is part of the case
    apart: str = ""  # tables whose titles begin so are of another kind: it is the first label of their case
    of_head: str = ""  # this line of the head is part of the case


ATTENTION = {"in steps: us per layer": "in steps", "floor us": "floor", "alone us": "alone", "cold us": "cold",
             "with append us": "with append"}  # fmt: skip
SPECS = {  # fmt: skip
    "step_cost": Spec(("requests", "batch", "loop"), target="ratio", apart="Capture"),
    "back_to_back": Spec(("requests", "batch", "steps"), target="cgr - skeleton"),
    "attention_cost": Spec(("case",), ATTENTION, "alone", apart="Other shapes"),
    "flashinfer_attention": Spec(("case",), {"floor us": "floor"}), "flashinfer_cost": Spec(("plan",), {"us": "planner"}, "planner"),
    "planner_cost": Spec(("batch",), {"us for 4 plan classes": "planner"}, "planner"),
    "fa3_cost": Spec(("decodes",), {"upstream, us": "upstream", "vllm, us": "vllm"}, "upstream"),
    "flashmla_cost": Spec(("requests", "lengths"), target="FlashMLA, 132 parts"),
    "fork_cost": Spec(("forks", "side streams")), "wait_cost": Spec(("mode", "step, ms")),
    "tail_cost": Spec(("loop", "memory", "second thread", "side")),
    "page_cost": Spec(("pages", "caches"), {"one call, us": "one call", "a call for each, us": "a call for each"}),
    "transform_cost": Spec(("transform", "tokens"), {f"{what} us": what for what in ("append", "one kernel", "two kernels", "saved", "floor")}),
    "python_cost": Spec(("requests", "batch", "steps"), target="more"),
    "mixed_attention": Spec(("decodes", "context", "chunk", "at", "decode parts of 33"),
                            {"floor us": "floor", "serial us": "serial", "now us": "now", "us": "now"}, titled=True),
    "mixed_cost": Spec(("mode, keys", "step"), target="prepare + launch"),
    "self_test_cost": Spec(("seed", "layers")), "tracing_cost": Spec(("ns a step",), target="median"),
    "nvtx_cost": Spec(("what", "config.nvtx"), titled=True),
    "calibrate": Spec(("KV tiles", "KV tiles per part", "kernel kind", "variant", "head dim", "fit over"), titled=True),
    "label_coverage": Spec(("phase",), of_head="step"),
    "llama_bench": Spec(("model", "params", "dtype", "mode", "test", "requests")),
    "llama_bench_guesses": Spec(("model", "params", "dtype", "mode", "test", "requests")),
    "timing_cost": Spec(("timing", "the clock"), {"us of a step on the device": "step on the device",
                                                  "us of prepare and launch": "prepare + launch", "ns": "clock, ns"}),
}

# Columns whose numbers are neither good nor bad, and units that a column's name does not tell.
COUNTS = {"nodes", "parts", "nodes each", "graphs", "graphs each", "keys", "width", "late", "layers", "steps", "major faults", "minor faults",
          "preempted", "slept", "counting", "in prepare", "in the driver", "in the rest"}  # fmt: skip
REFERENCES = {"floor", "skeleton", "least", "bare", "bare launch", "skeleton - bare", "least - skeleton", "model",
              "the same launches alone", "in C"}  # fmt: skip
UNITS = {
    "over serial": ("x", "lower"),
    "ratio": ("x", "lower"),
    "against the line": ("x", "lower"),
    "findings": ("count", "lower"),
    "largest error": ("%", "lower"),
    "GB/s": ("GB/s", "higher"),
    "TFLOP/s": ("TFLOP/s", "higher"),
    "tokens/s": ("1/s", "higher"),
}

def measure(column, suffix, around):
    """Unit of a column, and what is better; `around` is the text around the table, which may name a unit that the column does not."""
    if column in UNITS:
        return UNITS[column]
    if column in COUNTS or column in REFERENCES:
        return ("count" if column in COUNTS else "us", "")
    if column.endswith("over the floor"):
        return ("x", "lower")
    if suffix:
        return (suffix, "lower")
    for unit in ("ms", "bytes", "ns"):
        if re.search(rf"\b{unit}\b", column):
            return (unit, "lower")
    return ("ns" if re.search(r"\bns\b|\bnanoseconds\b", around) else "us", "lower")


def labels_of(spec, table):
    """The columns that say what a row is for: those that the program is known to have, or all that hold a word."""
    named = [c for c in table.columns if c in spec.labels]
    words = [c for i, c in enumerate(table.columns) if any(number_in(r[i]) is None and r[i] for r in table.rows)]
    return named or words or table.columns[:1]


def case_of(spec, table, labels, cells):
    """What a row is for."""
    case = {label: re.sub(r", \w+ 4095 empty", ", with 4095 empty", cells[label]) for label in labels}  # other words until 0.10
    if spec.apart and table.title.startswith(spec.apart):
        case = {"table": spec.apart.lower()} | case
    elif spec.titled:
        case = {"table": table.title} | case
    return ({spec.of_head: table.head[spec.of_head]} if spec.of_head in table.head else {}) | case


def records_of_row(program, spec, table, labels, row):
    cells = dict(zip(table.columns, row))
    case = case_of(spec, table, labels, cells)
    targets = {column: number_in(cell) for column, cell in cells.items() if column.startswith(("target", "goal"))}
    target = next(iter(targets.values()), None)
    found, before = [], ""
    for column, cell in zip(table.columns, row):
        number = number_in(cell)
        if column in labels or column == "p99" or column in targets or number is None:
            continue
        value, bracket, suffix = number
        metric = spec.rename.get(column, re.sub(r" of \d+ blocks$", "", column))
        # An attention row says twice what it is over the floor: of the time in the column before it.
        if column == "over the floor":
            metric = f"{before} over the floor"
        unit, better = measure(metric, suffix, f"{table.title} {table.columns[0]}")
        goal = target[0] if target and metric == spec.target else None
        if column == "ms per step" and (p99 := number_in(cells.get("p99", ""))):
            bracket, cell = p99[0], f"{cell} ({cells['p99']})"
        bracket = None if program == "calibrate" else bracket  # not a p99
        found.append(Record(program, dict(case), metric, unit, value, bracket, goal, better, cell))
        before = metric
    return found


def parse_tables(program, text):
    tables = read_tables(text)
    if not any(t.rows for t in tables):
        raise Unreadable("no table with rows")
    spec, found, titles = SPECS.get(program, Spec(titled=len(tables) > 1)), [], [table.title for table in tables]
    for i, table in enumerate(tables):
        if spec.titled and (before := titles[:i].count(table.title)):  # several tables under a heading
            table.title += f" ({before + 1})"
        labels = labels_of(spec, table)
        for row in table.rows:
            found += records_of_row(program, spec, table, labels, row)
    return found
