"""Makes the blocks of README.md that hold numbers: what one gains, and a table of this version's."""

import re

import results as made
import sections

# What; how the title of its section in sections.py begins, the row and the column there; what it means to a newcomer.
TABLE = """
host time of a decode step, 64 requests | Host time of an unchanged | 64, standing, unchanged | prepare + launch | all work of the host
the same over a bare graph launch | Host time of an unchanged | 64, standing, unchanged | ratio | 1 would be the launch alone
the same for 1024 requests | Host time of an unchanged | 1024, standing, unchanged | ratio | the host's work does not grow with the batch
16 of 256 requests get a page | A page more | 256, standing, 1/16 append a page | ratio | only what has changed is sent
one of 256 requests is replaced | One request | 256, standing, one leaves, one comes | ratio | close one, open another with 40 pages
host time of a mixed step | Host time of a mixed step | full | prepare + launch | 16 decodes and 512 tokens of a prompt, as one graph
GPU time that cgr adds, 64 requests | Steps back to back | 64, unchanged | cgr - skeleton | its own kernels in a step prepared ahead
planning the attention of 64 decodes | The planner | 64 decodes | planner | on the GPU, alongside the step's first kernels
attention, 1 request of 8k tokens | Attention of decodes | decode bs1 len8k | alone | one layer; reading its cache takes {floor} us
attention, 64 requests of 8k tokens | Attention of decodes | decode bs64 len8k | alone | one layer; reading its cache takes {floor} us
attention, a prompt of 4096 tokens | Attention of a prefill | prefill 4096 (causal) | alone | one layer; its arithmetic takes {floor} us
capture of 51 graphs | Capture | full, decode | ms in all | at start-up: a graph of 324 kernels for each batch size
self-test of 115 graphs | A self-test | 1 | ms | on request: shows that replays give what eager steps give
waiting for a step of 300 ms | Waiting | default, 300.0 | processor, % | of one core, for the thread that waits
"""
TESTS = {"pp512": "a prompt of 512 tokens", "tg128 @ 128": "decode steps, 128 tokens in each cache before"}


def table_rows(results):
    """{card: [(cells, result)]} of what this version has measured."""
    found = {}
    for what, title, name, metric, meaning in (line.split(" | ") for line in TABLE.strip().splitlines()):
        section = next(s for s in sections.SECTIONS if s.title.startswith(title))
        for row in made.rows_of(section, results):
            case = ", ".join(row.case.get(label, "") for label in section.labels)
            if case != name or metric not in row.cells or made.is_older(row.result):
                continue
            record, floor = row.cells[metric], row.cells.get("floor", row.cells[metric])
            unit = "%" if metric.endswith("%") else record.unit
            target = re.match(r"[\d.]*", row.target if metric == section.target[0] else "")[0]
            value, _, p99 = record.text.rstrip(")").partition(" (")
            numbers = [f"{number} {unit}".replace(" %", "%") if number else "" for number in (value, p99, target)]
            found.setdefault(row.result.card, []).append(([what, *numbers, meaning.format(floor=floor.text)], row.result))
    return found


def make_table(results):
    cards = table_rows(results)
    if not cards:
        return "Nothing of this version has been measured yet.\n"
    card = max(sorted(cards), key=lambda name: len(cards[name]))
    commits = ", ".join(dict.fromkeys(f"`{result.commit}`" for _, result in cards[card]))
    text = f"Version {made.version_text()} on one {card} ({commits}). Medians; p99, where it is measured, is what 99 of 100 stay below. "
    text += "A target is what the project tries to reach. [`profiles/RESULTS.md`](profiles/RESULTS.md) has all numbers."
    return f"{made.wrap(text)}\n{made.table(['what', 'value', 'p99', 'target', 'meaning'], [line for line, _ in cards[card]], 1)}"


def host_time(results, step, mode=None):
    """The newest of the example, with its result."""
    for record, result in ((record, r) for r in results if r.program == "llama" for record in r.records):
        case = record.case
        if record.metric == "host time" and case["step"] == step and mode in (None, case.get("mode", "full")):
            return record, result
    return None


def make_gain(results):
    bare = [(row.cells["bare launch"], row.result) for row in made.rows_of(sections.SECTIONS[0], results)][:1]
    lines = [
        ("every kernel launched by itself (eager)", host_time(results, "eager")),
        ("in pieces: graphs, and the engine's own launches between them", host_time(results, "replayed", "piecewise")),
        ("as one graph", host_time(results, "replayed", "full")),
        ("for comparison: launching a graph without cgr", host_time(results, "bare launch") or next(iter(bare), None)),
    ]
    lines = [[what, f"{pair[0].text.split(' ')[0]} us", made.origin(pair[1])] for what, pair in lines if pair]
    text = made.table(["a decode step of the example", "host time", "measured on"], lines, 1)
    for result, _, rows in made.bench_rows(results)[:1]:
        peers, speeds = [mode for mode in made.modes_of([(result, [], rows)])[1] if "," not in mode], []  # of each its best one
        for (model, dtype, test, requests), of in rows.items():
            if test in TESTS and "full" in of and set(peers) & set(of):
                cells = [of[mode]["tokens/s"].text if mode in of else "" for mode in ("full", *peers)]
                speeds.append([f"{model}, {dtype}", TESTS[test], requests, *cells, made.origin(result)])
        if speeds:
            text += "\nTokens per second of the example, and of others in the same call:\n\n"
            text += made.table(["model", "what", "requests", "cgr", *peers, "measured on"], speeds, 2)
    return text


def replace(text):
    """README with its blocks made anew."""
    results = made.parse.load_all(made.RESULTS)
    for name, make in (("gain", make_gain), ("table", make_table)):
        begin, end = f"<!-- results: {name} -->\n", "<!-- end of results -->"
        if len(re.findall(f"{re.escape(begin)}.*?{re.escape(end)}", text, re.S)) != 1:
            raise ValueError(f"expected one block from {begin.strip()} to {end}")
        before, _, rest = text.partition(begin)
        text = before + begin + make(results) + end + rest.partition(end)[2]
    return text
