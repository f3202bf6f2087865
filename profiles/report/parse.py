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

import dataclasses
import json
import pathlib
import re

import tables
import texts
from tables import Unreadable


@dataclasses.dataclass
class Result:
    path: str
    folder: str
    kind: str  # the file's name without its date: files of one kind are compared
    program: str
    head: dict
    records: list


# ------------------------------------------------------------------------------------------------------------ files and folders

# By the program that the file names, or by the stem of its own name, the longest that fits; what is not here needs a line
# "# program: profiles/..." and tables.
PARSERS = {
    "llama_check": texts.parse_llama_check,
    "llama": texts.parse_llama,
    "metrics": texts.parse_metrics,
    "phases": texts.parse_phases,
    "graph_time": texts.parse_phases,
    "label_coverage": texts.parse_label_coverage,
    "runs": texts.parse_runs,
    "tests": texts.parse_tests,
    "memcheck": texts.parse_tests,
    "racecheck": texts.parse_tests,
    "synccheck": texts.parse_tests,
    "sanitizers": texts.parse_tests,
    "two_gpus": texts.parse_tests,
    "planner_20000": texts.parse_repeats,
    "simulation": texts.parse_simulation,
    "standing_edits": texts.parse_edits,
    "coverage": texts.parse_coverage,
    "transformers": texts.parse_transformers,
    "timing_cost": tables.parse_timing_cost,
    "kernel_cost": tables.parse_kernel_cost,
    "planner_cost": tables.parse_kernel_cost,
    "fa3_cost": tables.parse_kernel_cost,
    "flashinfer_cost": tables.parse_kernel_cost,
    "flashmla_cost": tables.parse_kernel_cost,
}
SUFFIXES = (".txt", ".json", ".prom", ".csv")


def parse_text(stem, text):
    """(program, records) of a file's text, or Unreadable."""
    line = re.search(r"^# program: (?:profiles/)?(?:peers/)?(\w+)(?:\.py)?$", text, re.M)
    program = line[1] if line else None
    by_name = max((name for name in PARSERS if stem.startswith(name)), key=len, default=None)
    kind = program if program in PARSERS or program in tables.SPECS else by_name or program
    if kind is None:
        raise Unreadable('neither its name nor a line "# program: profiles/..." says what it is')
    found = PARSERS[kind](text) if kind in PARSERS else tables.parse_tables(kind, text)
    if not found:
        raise Unreadable("holds none of the numbers that are expected of its kind")
    return (program or kind, found)


def head_of(text, place):
    """Device, date and so on; those of a JSON file have other names. `place` is the file's, whose names may hold the date."""
    head = tables.read_head(text)
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
