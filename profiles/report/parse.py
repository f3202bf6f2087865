"""Parses the output of the programs of profiles/, as kept under profiles/results/, into records.

A record is one number of one file:

    program   who printed it: "step_cost"
    case      what was measured, one entry per label column: {"requests": "64", "batch": "unchanged", "loop": "tight"}
    metric    the column: "prepare + launch"
    unit      "us", "ms", "x" (a ratio), "%", "bytes", "count", ...
    value     the number: a median where the program prints one; text: as it was printed
    p99       the number in brackets, None without one; target: what it should be at most, None without one
    better    "lower", "higher", or "" for numbers that are neither good nor bad

Needs only Python 3.10.
"""

import contextlib
import dataclasses
import pathlib
import re

import tables
from tables import NUMBER, Record, Unreadable


@dataclasses.dataclass
class Result:
    path: str
    kind: str  # the file's name without its date: files of one kind are compared
    program: str
    head: dict
    records: list
    engines: list  # the programs that the tables of a llama_bench file come from

    @property
    def card(self):
        """The device without what differs from program to program: "NVIDIA H200 (132 multiprocessors)" is one."""
        return re.sub(r" \(.*", "", self.head.get("device", ""))

    @property
    def commit(self):
        return re.match(r"\w*", self.head.get("commit", ""))[0]

    @property
    def version(self):
        """(0, 11) of "cgr 0.11.0, with CUDA 13.0"; (0, 0) if the file does not say it."""
        found = re.search(r"\bcgr (\d+)\.(\d+)\.", " ".join([self.head.get("library", ""), *self.engines]))
        return (int(found[1]), int(found[2])) if found else (0, 0)

    def age(self):
        """The larger, the newer."""
        return (self.version, self.head.get("date", ""), self.kind == self.program, self.path)


STEP_ROW = re.compile(r"^(decode|prefill|mixed) +(\S+)" + r" +(\d+)" * 3 + rf" +({NUMBER})" * 4 + r" +(\d+)$")
RATE = re.compile(r"^(prompt|generated) +[\d,]+ tokens? +([\d,]+)/s(?: +(\w+ tokens?) (?:after )?([\d.]+) ms(?: \(p99 ([\d.]+) ms\))?)?$")


def parse_llama(text):
    """Host times and rates of one or more runs of the example, each named by its mode."""
    found, case = [], {}
    for line in text.splitlines():
        if mode := re.match(r"== --mode (\S+)$", line):
            case = {"mode": mode[1]}
        elif times := re.search(r"host time per step: (.*)", line, re.I):
            for what, us in re.findall(rf"([a-z][a-z ]*?) ({NUMBER}) us\b", times[1]):
                found.append(Record("llama", case | {"step": what}, "host time", "us", float(us), text=us))
        elif rate := RATE.match(line):
            of, speed = case | {"of": rate[1]}, rate[2].replace(",", "")
            found.append(Record("llama", of, "tokens/s", "1/s", float(speed), better="higher", text=speed))
            if rate[3]:
                found.append(Record("llama", of, rate[3], "ms", float(rate[4]), float(rate[5]) if rate[5] else None, text=rate[4]))
        elif step := STEP_ROW.match(line):
            kind = case | {"step": step[1], "graph": step[2].lower()}
            for metric, median, p99 in (("prepare", step[6], step[7]), ("launch", step[8], step[9])):
                found.append(Record("llama", kind, metric, "us", float(median), float(p99), text=f"{median} ({p99})"))
    return found


ENGINE = {  # what a line of examples/torch_engine says of a mode that ran alone, and in which unit
    r"host time of \d+ steps of decodes of .*: p50 ([\d,.]+) us, p99 ([\d,.]+) us": ("host time", "us"),
    r"such a step takes ([\d,.]+) us \(p50\)": ("step", "us"),
    r"such a step .*: ([\d,.]+) tokens/s$": ("tokens/s", "1/s"),
    r".*so the GPU idles for ([\d.]+)%$": ("GPU idle", "%"),
}


def parse_torch_engine(text):
    """The modes that ran one after the other: "== --mode cgr: 64 requests"."""
    found, case = [], None
    for line in text.splitlines():
        if line.startswith("== "):
            mode = re.match(r"== --mode (\S+): (\d+) requests$", line)
            case = {"mode": mode[1], "requests": mode[2]} if mode else None
        for pattern, (metric, unit) in ENGINE.items() if case else ():
            if number := re.match(pattern, line):
                value, *p99 = (float(n.replace(",", "")) for n in number.groups())
                better = "higher" if unit == "1/s" else "lower"
                shown = number[1] + (f" ({number[2]})" if p99 else "")
                found.append(Record("torch_engine", case, metric, unit, value, *p99, better=better, text=shown))
    return found


BY_NAME = ("llama_bench_guesses", "llama_bench", "llama_cpp", "llama", "torch_engine")  # of files that name no program


def parse_text(stem, text):
    """(program, records) of a file's text, or Unreadable."""
    line = re.search(r"^# program: (?:profiles/)?(?:peers/)?(\w+)(?:\.py)?$", text, re.M)
    program = line[1] if line else next((name for name in BY_NAME if stem.startswith(name)), None)
    if program is None:
        raise Unreadable('neither its name nor a line "# program: profiles/..." says what it is')
    program = "llama_bench" if program == "llama_cpp" else program
    of = {"llama": parse_llama, "torch_engine": parse_torch_engine}.get(program)
    found = of(text) if of else tables.parse_tables(program, text)
    if not found:
        raise Unreadable("holds none of the numbers that are expected of its kind")
    return program, found


def kind_of(path):
    return re.sub(r"_?\d{4}-\d\d-\d\d", "", pathlib.Path(path).stem)


def parse_file(path):
    path = pathlib.Path(path)
    if path.suffix != ".txt":
        raise Unreadable(f"ends in {path.suffix or 'nothing'}, expected .txt")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable("not a text") from error
    program, found = parse_text(path.stem, text)
    head = dict(reversed(re.findall(r"^# ([\w ,.]+): (.*?) *$", text, re.M)))  # the first line of a name counts
    if date := re.search(r"\d{4}-\d\d-\d\d", f"{path.parent.name}/{path.name}"):
        head.setdefault("date", date[0])
    engines = re.findall(r"^# ((?:llama|transformers)\b[^:\n]*)$", text, re.M)
    return Result(str(path), kind_of(path), program, head, found, engines)


def load(folders):
    """The results of folders, and what could not be read as [(path, why)].

    Of several files of one kind the one in the folder that comes first counts, so that later folders fill what it lacks; in one
    folder the newest by the date in its name.
    """
    results, unread, have = [], [], set()
    for path in [p for f in folders for p in sorted(sorted(pathlib.Path(f).iterdir(), reverse=True), key=kind_of)]:
        if path.is_file() and kind_of(path) not in have:
            try:
                results.append(parse_file(path))
                have.add(kind_of(path))
            except Unreadable as why:
                unread.append((str(path), str(why)))
    return results, unread


def load_all(root):
    """The results of all folders in a folder that name a device, the newest first."""
    folders = [path for path in sorted(pathlib.Path(root).rglob("*")) if path.is_dir()]
    found = []
    for path in (path for folder in folders for path in sorted(folder.glob("*.txt"))):
        with contextlib.suppress(Unreadable):  # texts that are kept for people
            found.append(parse_file(path))
    return sorted((result for result in found if result.card), key=Result.age, reverse=True)
