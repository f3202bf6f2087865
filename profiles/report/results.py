"""Makes profiles/RESULTS.md from the kept results: of each number the newest of each card."""

import csv
import dataclasses
import pathlib
import re
import textwrap

import parse
import sections

ROOT = pathlib.Path(__file__).absolute().parents[2]
RESULTS = ROOT / "profiles" / "results"

INTRO = """\
Made by `profiles/report/run --results` from [`results`](results). Each number is the newest for its card. Numbers are medians, with the
99th percentile in brackets where the program prints one; both sides of a comparison run in turn in one process. The last column says where
a number comes from: the card, the version if it is older than this one, {}, and the commit. Targets are the project's own: what it tries to
reach. [`README.md`](README.md) says what each program is for. Commands are the usual ones; the head of a file says how many blocks it has.
"""


@dataclasses.dataclass
class Row:
    case: dict
    cells: dict  # metric: record
    target: str
    result: parse.Result


def version(parts=("MAJOR", "MINOR")):
    """(0, 11) of the headers."""
    text = (ROOT / "include" / "cgr" / "base.h").read_text(encoding="utf-8")
    return tuple(int(re.search(rf"define CGR_VERSION_{part} (\d+)", text)[1]) for part in parts)


def version_text(of=None):
    return ".".join(map(str, of or version(("MAJOR", "MINOR", "PATCH"))))


def is_older(result):
    return result.version != version()


def origin(result):
    """Card, version if it is an older one, commit."""
    old = f"{version_text(result.version)}, " if is_older(result) else ""
    return re.sub(r"^NVIDIA (\w+).*", r"\1", result.card) + f", {old}`{result.commit}`"


def rows_of(section, results):
    """Of each card and case the newest; cards and cases in the order of the files."""
    found = {}
    for result in (r for r in results if r.program == section.program):
        cases = {}
        for record in result.records:
            if record.metric in section.metrics and section.where(record.case):
                cases.setdefault(tuple(record.case.get(label, "") for label in section.labels), {})[record.metric] = record
        for name, cells in cases.items():
            found.setdefault((result.card, name), Row(next(iter(cells.values())).case, cells, target_of(section, result, cells), result))
    return [found[key] for key in sorted(found, key=lambda key: key[0])]


def target_of(section, result, cells):
    metric, function = section.target
    if function:
        return function(result.card, next(iter(cells.values())).case)
    record = cells.get(metric)
    return f"{record.target:g}" if record and record.target is not None else ""


def wrap(text):
    return textwrap.fill(text, 140, break_on_hyphens=False, break_long_words=False) + "\n"


def table(columns, rows, labels):
    """Markdown; the first `labels` columns are words, and so is the last one unless it holds numbers alone."""
    last = "---:" if rows and all(re.match(r"[\d.,]+( us)?$", row[-1]) for row in rows) else "---"
    rule = "|".join(["---"] * labels + ["---:"] * (len(columns) - labels - 1) + [last])
    return f"| {' | '.join(columns)} |\n|{rule}|\n" + "".join(f"| {' | '.join(row)} |\n".replace("  ", " ") for row in rows)


def heading(title, command, text):
    return f"\n## {title}\n\n{wrap(f'{command}. {text}')}\n"


def make_section(section, results):
    rows = rows_of(section, results)
    if not rows:
        return ""
    metrics = [m for m in section.metrics if any(m in row.cells for row in rows)]
    has_target = any(row.target for row in rows)
    lines = []
    for row in rows:
        cells = [row.case.get(label, "") for label in section.labels] + [row.cells[m].text if m in row.cells else "" for m in metrics]
        lines.append(cells + ([row.target] if has_target else []) + [origin(row.result)])
    columns = [*section.labels, *metrics, *(["target"] if has_target else []), "from"]
    text = heading(section.title, f"`{section.command}`", section.unit + section.text)
    return text + table(columns, lines, len(section.labels))


def newest_folders(results, *programs):
    """Of each card the results of its newest folder that has one of each program; the newest card first."""
    folders, found = {}, {}
    for result in results:
        folders.setdefault(pathlib.Path(result.path).parent, []).append(result)
    for folder in folders.values():
        if {r.program for r in folder} >= set(programs):
            found.setdefault(folder[0].card, folder)
    return list(found.values())


MODES = {"full": "as one graph", "piecewise": "in pieces", "none": "eagerly"}  # what is not here is another project's


def bench_rows(results):
    """[(a result of cgr's, engines, {(model, dtype, test, requests): {mode: {metric: record}}})], one call of each card."""
    found = []
    for folder in newest_folders(results, "llama_bench"):
        rows, files = {}, [r for r in folder if r.program == "llama_bench"]
        for case, record in ((record.case, record) for result in files for record in result.records):
            key = (case["model"], case["dtype"], case["test"], case["requests"])
            rows.setdefault(key, {}).setdefault(case["mode"], {})[record.metric] = record
        found.append((files[0], [engine for result in files for engine in result.engines], rows))
    return found


def modes_of(benches):
    modes = {mode for _, _, rows in benches for of in rows.values() for mode in of}
    return [m for m in MODES if m in modes], sorted(modes - set(MODES))


def make_bench(results):
    benches, lines = bench_rows(results), []
    modes = [mode for group in modes_of(benches) for mode in group]
    for result, _, rows in benches:
        for (model, dtype, test, requests), of in rows.items():
            cells = [of[mode][m].text if m in of.get(mode, {}) else "" for mode in modes for m in ("ms per step", "tokens/s")]
            lines.append([model, dtype, test, requests, *cells, sections.bench(result.card, model, test, requests), origin(result)])
    if not lines:
        return ""
    columns = [f"{MODES.get(mode, mode)}: {metric}" for mode in modes for metric in ("ms per step", "tokens/s")]
    engines = ", ".join(sorted({engine.replace("llama --bench, ", "") for _, names, _ in benches for engine in names}))
    text = f"All of a card in one call: {engines}. pp512 is a prompt of 512 tokens, tg128 @ 128 is 128 decode steps after 128 tokens. "
    text += "llama.cpp samples on the GPU, as the example does, or copies the logits to the host (logits). "
    text += "Target: of the milliseconds as one graph: 1.09 times (8 requests: 1.14 times) what a streaming read of the weights takes."
    text = heading("The example's throughput, and other programs'", "`llama --bench`, `profiles/peers/llama_cpp.py`", text)
    return text + table(["model", "dtype", "test", "requests", *columns, "target", "from"], lines, 3)


def make_flashinfer(results):
    lines, peers, library = [], ("TC, graph us", "TC, once us", "HOL us"), ""
    for folder in newest_folders(results, "flashinfer_attention", "attention_cost"):
        ours, theirs = (next(r for r in folder if r.program == p) for p in ("attention_cost", "flashinfer_attention"))
        cells = {(r.case["case"], r.metric): r.text for r in theirs.records}
        for record in ours.records:
            if record.metric == "alone" and (case := record.case["case"]) in {name for name, _ in cells}:
                lines.append([case, record.text, *(cells.get((case, peer), "wrong") for peer in peers), origin(ours)])
        library = theirs.head["library"]
    if not lines:
        return ""
    text = f"Microseconds of the kernel by itself, in one call on one card; {library}. TC are its kernels on tensor cores, "
    text += "planned for a graph or for these lengths once; HOL is its persistent kernel. A result that is wrong has no time. No target."
    text = heading("Attention next to FlashInfer's", "`profiles/peers/flashinfer_attention.py`", text)
    return text + table(["case", "cgr", *(peer.removesuffix(" us") for peer in peers), "from"], lines, 1)


def make_runs(path, commits=2):
    with open(path, encoding="utf-8", newline="") as file:
        runs = sorted(csv.DictReader(file), key=lambda run: run["date"])[::-1]  # of one day, the last line is the newest
    lines, left_out = [], 0
    for device in dict.fromkeys(run["device"] for run in runs):
        of_device = [run for run in runs if run["device"] == device]
        newest = list(dict.fromkeys(run["commit"] for run in of_device))[:commits]
        left_out += sum(run["commit"] not in newest for run in of_device)
        for run in (run for run in of_device if run["commit"] in newest):
            counts = [run["passed"], run["failed"], run["skipped"]]
            lines.append([run["date"], device.replace("NVIDIA ", ""), run["suite"], *counts, f"`{run['commit']}`"])
    text = "Of the newest two commits of each machine, cases (or programs, where the notes say so) that passed, failed and were skipped. "
    text += f"[`runs.csv`](results/runs.csv) says what failed, and why, and has {left_out} runs of earlier commits."
    text = heading("Tests and checkers", "`tools/gpu/run_tests.sh`", text)
    return text + table(["date", "machine", "what", "passed", "failed", "skipped", "commit"], lines, 3)


def make(root=RESULTS):
    results = parse.load_all(root)
    parts = [f"# Results\n\n{wrap(INTRO.format(version_text()))}"]
    for section in sections.SECTIONS:
        parts.append(make_section(section, results))
        if section.program == "llama":
            parts += [make_bench(results), make_flashinfer(results)]
    return "".join(parts) + make_runs(root / "runs.csv")
