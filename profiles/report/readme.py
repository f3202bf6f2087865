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
capture of 51 graphs | Capture | full, decode | ms in all | at start-up; 51 batch sizes, 324 kernels and {mb} MB of device memory each
"""
GAIN = {
    "each kernel launched by itself (eager)": ("eager", "full"),
    "in pieces: graphs, and the engine's own launches between them": ("replayed", "piecewise"),
    "**as one graph, by cgr**": ("replayed", "full"),
    "a graph of as many empty kernels, without cgr": ("bare launch", "full"),
}
PEER = "llama.cpp: flash attention, fp16 KV cache, the faster of sampling on the GPU and copying logits to the host."
TESTS = {"pp512": "a prompt of 512 tokens", "tg128 @ 128": "decode, requests: {}, each with 128 tokens in its cache"}


def table_rows(results):
    """{card: [(cells, result)]} of what this version has measured."""
    found = {}
    for what, title, name, metric, meaning in (line.split(" | ") for line in TABLE.strip().splitlines()):
        section = next(s for s in sections.SECTIONS if s.title.startswith(title))
        for row in made.rows_of(section, results):
            case = ", ".join(row.case.get(label, "") for label in section.labels)
            if case != name or metric not in row.cells or made.is_older(row.result):
                continue
            record, floor, size = row.cells[metric], row.cells.get("floor"), row.cells.get("device bytes each")
            notes = {"floor": floor and floor.text, "mb": size and f"{int(size.text) / 1e6:.2f}"}
            unit = "%" if metric.endswith("%") else record.unit
            target = re.match(r"[\d.]*", row.target if metric == section.target[0] else "")[0]
            value, _, p99 = record.text.rstrip(")").partition(" (")
            numbers = [f"{number} {unit}".replace(" %", "%") if number else "" for number in (value, p99, target)]
            found.setdefault(row.result.card, []).append(([what, *numbers, meaning.format(**notes)], row.result))
    return found


def make_table(results):
    cards = table_rows(results)
    if not cards:
        return "Nothing of this version has been measured yet.\n"
    card = max(sorted(cards), key=lambda name: len(cards[name]))
    commits = ", ".join(dict.fromkeys(f"`{result.commit}`" for _, result in cards[card]))
    text = f"Version {made.version_text()} on one {card} ({commits}). Medians; p99 is what 99 of 100 steps stay below, in ratios of both sides. "
    text += "A target is the project's own, and for the median. [`profiles/RESULTS.md`](profiles/RESULTS.md) has all numbers."
    return f"{made.wrap(text)}\n{made.table(['what', 'value', 'p99', 'target', 'meaning'], [line for line, _ in cards[card]], 1)}"


def make_gain(results):
    hosts, lines = [(r, record) for r in results for record in r.records if (r.program, record.metric) == ("llama", "host time")], []
    for what, of in GAIN.items():
        found = [(r, record) for r, record in hosts if (record.case["step"], record.case.get("mode")) == of]
        lines += [[what, f"{record.text} us", r.card] for r, record in found[:1]]  # the newest
    if not lines:
        return "Nothing has been measured yet.\n"
    return made.table([f"one decode step of [the example](examples/llama), its bundled model, {lines[0][2]}", "host time"], [line[:2] for line in lines], 1)


def fast(of, mode):  # tokens per second, by the better way of a peer that was run in several
    found = [of[name]["tokens/s"] for name in of if name.split(",")[0] == mode]
    return f"{max(float(record.text) for record in found):,.0f}" if found else ""


def make_peers(results):
    for result, _, rows in made.bench_rows(results)[:1]:
        peers, lines = [mode for mode in made.modes_of([(result, [], rows)])[1] if "," not in mode], []
        for (model, _, test, requests), of in rows.items():
            if test in TESTS and "full" in of and any(fast(of, peer) for peer in peers):
                lines.append([model.split(" ")[0].upper(), TESTS[test].format(requests), *(fast(of, mode) for mode in ("full", "none", *peers))])
        if lines:
            text = f"Tokens per second with random weights in bf16, on one {result.card} in one call (`{result.commit}`). {PEER}"
            return made.wrap(text) + "\n" + made.table(["Llama 3", "what", "cgr's example", "the same, eagerly", *peers], lines, 2)
    return "Nothing has been measured yet.\n"


def replace(text):
    """README with its blocks made anew."""
    results = made.parse.load_all(made.RESULTS)
    for name, make in (("gain", make_gain), ("peers", make_peers), ("table", make_table)):
        begin, end = f"<!-- results: {name} -->\n", "<!-- end of results -->"
        if len(re.findall(f"{re.escape(begin)}.*?{re.escape(end)}", text, re.S)) != 1:
            raise ValueError(f"expected one block from {begin.strip()} to {end}")
        before, _, rest = text.partition(begin)
        text = before + begin + make(results) + end + rest.partition(end)[2]
    return text
