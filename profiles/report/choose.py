"""Chooses from records what each plot shows. Needs only Python 3.10: what a plot would show can be tested without plotting."""

import dataclasses
import json
import pathlib
import re

import parse
import texts

KINDS_OF_BATCH = (
    ("unchanged", "the batch does not change"),
    ("1/16 append a page", "1/16 of it append a page"),
    ("one leaves, one comes", "one leaves, one comes"),
)


class Chosen:
    """The records of the results of one device: the device of most of them; those of others count for padding alone."""

    def __init__(self, results):
        self.results = results
        devices = [device_of(r) for r in results if r.program.endswith("_cost")]
        self.device = max(sorted(set(devices)), key=devices.count, default="")
        self.records = [rec for r in results if device_of(r) == self.device for rec in r.records]
        self.anywhere = [rec for r in results for rec in r.records]

    def find(self, program, metric=None, where=None, **case):
        """{the value of the label `where`: record}, in the order of the file; without `where` a list."""
        found = [
            r
            for r in self.records
            if r.program == program
            and (metric is None or r.metric == metric)
            and all(r.case.get(k) == v for k, v in case.items())
        ]
        return {r.case[where]: r for r in found if where in r.case} if where else found


def device_of(result):
    """The device without what differs from program to program: "NVIDIA H200 (132 multiprocessors)" is one."""
    return re.sub(r" \(.*", "", result.head.get("device", ""))


def by_size(records):
    """(sizes, records) of {"64": record}, the smallest first."""
    sizes = sorted(int(s) for s in records)
    return sizes, [records[str(s)] for s in sizes]


def host_time(chosen):
    panels = []
    for batch, title in KINDS_OF_BATCH:
        series = {}
        for name, kind in (("whole", batch), ("standing", f"standing, {batch}")):
            parts = [
                chosen.find("step_cost", metric, "requests", batch=kind, loop="tight")
                for metric in ("prepare + launch", "bare launch", "ratio")
            ]
            if all(parts) and parts[0].keys() == parts[1].keys() == parts[2].keys():
                sizes, times = by_size(parts[0])
                series[name] = (sizes, times, by_size(parts[1])[1], by_size(parts[2])[1])
        if series:
            panels.append((title, series))
    return panels


def loops(chosen):
    rows = []
    for record in chosen.find("step_cost", "prepare + launch"):
        case = record.case
        if case.get("loop", "tight") == "tight":
            continue
        bare = [r for r in chosen.find("step_cost", "bare launch") if r.case == case]
        if bare and record.p99 is not None and bare[0].p99 is not None:
            rows.append((case["loop"], case["requests"], record, bare[0]))
    order = list(dict.fromkeys(row[0] for row in rows))
    return sorted(rows, key=lambda row: (order.index(row[0]), int(row[1])))


def attention(chosen, peers):
    """[(case, floor, own, others)] of the layer that the peers were measured with, and the names of the peers."""
    names, rows = list(peers["peers"]), []
    floors = {r.case["case"]: r for r in chosen.find("attention_cost", "floor") if "table" not in r.case}
    for case, floor in floors.items():
        own = {metric: r.value for metric in ("in steps", "alone") for r in chosen.find("attention_cost", metric, case=case)}
        others = dict(zip(names, peers["cases"].get(case, ())))
        rows.append((case, exact_floor(chosen, case, own, floor.value), own, others))
    return [row for row in rows if row[2]], names


OF_OTHER_SHAPES = ("floor", "alone", "alone over the floor", "GB/s", "TFLOP/s", "cold", "with append", "error")


def other_shapes(chosen):
    """[(case, {metric: record})] of the layers that no peer was measured with."""
    rows = {}
    for record in chosen.find("attention_cost", table="other shapes"):
        if record.metric in OF_OTHER_SHAPES:
            rows.setdefault(record.case["case"], {})[record.metric] = record
    return list(rows.items())


def exact_floor(chosen, case, own, floor):
    """The floor is printed with one digit after the point, which is few for the shortest case; the ratio next to it has more."""
    for metric in ("alone", "in steps"):
        over = chosen.find("attention_cost", f"{metric} over the floor", case=case)
        if floor < 2 and over and metric in own:
            return own[metric] / over[0].value
    return floor


def padding(chosen, most=20):
    """[(key, steps, real, padded)] of a page of metrics, the most padding first, and how many keys are left out."""
    names = ("cgr_key_steps_total", "cgr_key_real_tokens_total", "cgr_key_padded_tokens_total")
    table = {}
    for record in chosen.anywhere:
        if record.program == "metrics" and record.metric in names and record.case.get("key", "eager") != "eager":
            table.setdefault(record.case["key"], {})[record.metric] = record.value
    rows = [(key, *(values[n] for n in names)) for key, values in table.items() if len(values) == 3 and values[names[2]] > 0]
    rows.sort(key=lambda row: (row[2] - row[3], -row[1]))
    return rows[:most], max(0, len(rows) - most)


@dataclasses.dataclass
class Phases:
    """Of one replay."""

    result: object  # the file that it comes from
    source: str  # which graph, or step
    rows: list  # [(phase, record, share in % or None)]
    outside: object  # record of the time outside of graphs; None: not told


def phases(chosen, named=None):
    """Of each file with phases, or only of the one that is named: the graph that took the most time."""
    files = [phases_of(r) for r in chosen.results if named is None or r.path == str(pathlib.Path(named))]
    return [found for found in files if found]


def phases_of(result):
    times, shares, outside = {}, {}, {}
    for record in (r for r in result.records if r.program == "phases"):
        if record.metric == texts.OUTSIDE:
            outside[record.case["source"]] = record
        of = {"time of a replay": times, "share": shares}.get(record.metric)
        if of is not None:
            of.setdefault(record.case["source"], {})[record.case["phase"]] = record
    if not times:
        return None
    source = max(times, key=lambda s: sum(r.value for r in times[s].values()))
    share = shares.get(source, {})
    rows = [(phase, record, share[phase].value if phase in share else None) for phase, record in times[source].items()]
    return Phases(result, source, rows, outside.get(source))


def own_nodes(chosen):
    steps = {}
    for batch in dict.fromkeys(r.case["batch"] for r in chosen.find("back_to_back", "cgr - skeleton") if "batch" in r.case):
        found = chosen.find("back_to_back", "cgr - skeleton", "requests", batch=batch, steps="ahead")
        if found:
            steps[batch] = by_size(found)
    kernels = {}
    for name in ("prologue", "planner", "fetch", "epilogue", "sum"):
        found = {r.case["requests"]: r for r in chosen.find("back_to_back", name)}
        if found:
            sizes, records = by_size(found)
            kernels[name] = (sizes, [r.value for r in records])
    alone = {}
    for name in ("prologue over the bus", "prologue, fetched", "planner", "fetch", "epilogue"):
        found = {
            m[1]: r for r in chosen.find("kernel_cost", name) if (m := re.match(r"(\d+) decodes?, unchanged$", r.case["step"]))
        }
        if found:
            sizes, records = by_size(found)
            alone[name] = (sizes, [r.value for r in records])
    return steps, kernels, alone


def planners(chosen):
    """[(name, sizes, values, family)] over the number of requests."""
    series = []

    def add(name, family, found):
        if found:
            sizes, records = by_size(found)
            series.append((name, sizes, [r.value for r in records], family))

    add(
        "cgr, four kinds of layers",
        "cgr",
        {m[1]: r for r in chosen.find("planner_cost", "planner") if (m := re.match(r"(\d+) decodes?$", r.case["batch"]))},
    )
    add("for FlashAttention-3", "FlashAttention-3", chosen.find("fa3_cost", "upstream", "decodes"))
    add("for FlashAttention-3, vLLM's", "FlashAttention-3", chosen.find("fa3_cost", "vllm", "decodes"))
    for name, pattern in (
        ("for FlashInfer, decode", r"decode, (\d+) requests?$"),
        ("for FlashInfer, tensor cores", r"tensor cores, (\d+) requests?$"),
        ("for FlashInfer, decode, 1 KV head", r"decode, (\d+) requests?, 1 KV head$"),
    ):
        add(
            name,
            "FlashInfer",
            {m[1]: r for r in chosen.find("flashinfer_cost", "planner") if (m := re.match(pattern, r.case.get("plan", "")))},
        )
    for name, family, metric in (
        ("for FlashMLA, 132 parts", "FlashMLA", "FlashMLA, 132 parts"),
        ("block table of 128 pages", "block table", "block table, 128 pages"),
    ):
        add(
            name,
            family,
            {r.case["requests"]: r for r in chosen.find("flashmla_cost", metric) if r.case.get("lengths") == "1 .. 8192"},
        )
    return series


def targets(chosen):
    """[(record, by how many times it misses)]: every record with a target, the worst first."""
    found = [(r, r.value / r.target) for r in chosen.records if r.target]
    return sorted(found, key=lambda pair: -pair[1])


def read_peers(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)
