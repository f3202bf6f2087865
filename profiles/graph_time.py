"""What the replays of a runtime's graphs took on the GPU, by phase: joins an export of Nsight Systems with graph_labels.json.

    profiles/nsys.sh --out step <program>
    python3 profiles/graph_time.py step.sqlite graph_labels.json [--layers] [--json]

An export that you make yourself must be traced with --cuda-graph-trace=node, as nsys.sh does. graph_labels.json is what
cgr_runtime_graph_labels writes, of the same process. If the driver tells the ids of nodes (CUDA 13.1 and later), they are the
join key. Otherwise a graph of the export belongs to the piece whose nodes have the same names in the same order; graphs that
several pieces fit are reported as ambiguous, and have phases only if all of those pieces agree on them. Needs Python 3.9 and
nothing else.
"""

import argparse
import collections
import contextlib
import dataclasses
import json
import math
import os
import pathlib
import sqlite3
import statistics
import sys

# Nodes that the GPU is not busy with, of which an export has no record, are called by one of these names or, with an address
# behind it, a host function. profiles/label_coverage.c has the same rule.
IDLE_NAMES = ("event", "child graph", "node")
HOST_FUNCTION = "host function"
NO_LABEL = ("no label", None, None)
# A global tid holds the global pid above these bits, and a global pid the process's own number in its low ones.
TID_BITS = 24
PID_MASK = (1 << 24) - 1
ID_MASK = (1 << 64) - 1


class Failure(Exception):
    """What the user has to know, as a sentence."""


@dataclasses.dataclass
class Activity:
    names: tuple  # any of which may be the label's
    start: int  # ns
    end: int
    graph: tuple  # (process, id); None: of no graph
    node: int  # the id of the executable graph's node
    order: int  # of the node it was made from, or its own
    launch: int  # correlation id: the same for the nodes of one replay


@dataclasses.dataclass
class Piece:
    key: str
    index: int  # of the piece in the graph
    count: int  # pieces of the graph
    labels: list  # [(phase, layer, backend)] of the nodes that the GPU is busy with
    names: list
    ids: list  # None where the driver does not tell


# ------------------------------------------------------------------------------------------------------------- reading


def is_idle(name):
    return name in IDLE_NAMES or name.startswith(HOST_FUNCTION)


def read_labels(text):
    """The pieces of every graph, and what is wrong with graphs that have none."""
    pieces, complaints = [], []
    for graph in json.loads(text)["graphs"]:
        if graph["unlabelled"]:
            complaints.append(f"{graph['key']} has no labels: {graph['unlabelled']}")
        for index, runs in enumerate(graph["pieces"]):
            piece = Piece(graph["key"], index, len(graph["pieces"]), [], [], [])
            for run in runs:
                ids = run.get("ids") or [None] * len(run["nodes"])
                if len(ids) != len(run["nodes"]):
                    raise ValueError(f"{graph['key']} has {len(run['nodes'])} nodes and {len(ids)} ids under one label")
                for name, node in zip(run["nodes"], ids):
                    if not is_idle(name):
                        piece.labels.append((run["phase"], run["layer"], run["backend"]))
                        piece.names.append(name)
                        piece.ids.append(node)
            pieces.append(piece)
    return pieces, complaints


def columns_of(db, table):
    return {row[1] for row in db.execute(f"PRAGMA table_info({table})")}


def read_table(db, table, wanted):
    """Rows as dictionaries; a column that the table lacks is None."""
    have = columns_of(db, table)
    fields = ", ".join(f'"{c}"' if c in have else "NULL" for c in wanted)
    for row in db.execute(f"SELECT {fields} FROM {table}") if have else []:
        yield dict(zip(wanted, row))


def read_originals(db):
    """{(process, id of a node): id of the node from which it was made}; of process None where the export does not tell."""
    originals = {}
    for row in read_table(db, "CUDA_GRAPH_NODE_EVENTS", ["globalTid", "graphNodeId", "originalGraphNodeId"]):
        node, original = id_of(row["graphNodeId"]), id_of(row["originalGraphNodeId"])
        if node and original:
            process = process_of(row["globalTid"]) if row["globalTid"] is not None else None
            originals[process, node] = original
    return originals


def whole_number(value):
    """The identifier that an export has; 0 for none."""
    if value is not None and not isinstance(value, int):
        raise Failure(f"the export has {value!r} for an identifier, expected a whole number")
    return value or 0


def process_of(identifier):
    """A global pid, or tid, without what is below the process."""
    return whole_number(identifier) >> TID_BITS


def id_of(identifier):
    """Of a node. SQLite has no unsigned numbers."""
    return whole_number(identifier) & ID_MASK


def read_activities(path):
    try:
        with contextlib.closing(sqlite3.connect(f"{pathlib.Path(path).absolute().as_uri()}?mode=ro", uri=True)) as db:
            return activities_of(db, path)
    except sqlite3.Error as error:
        raise Failure(f"{path} cannot be read: {error}") from error


def activities_of(db, path):
    if not columns_of(db, "CUPTI_ACTIVITY_KIND_KERNEL"):
        raise Failure(f"{path} has no table CUPTI_ACTIVITY_KIND_KERNEL: was CUDA traced (-t cuda)?")
    if "graphNodeId" not in columns_of(db, "CUPTI_ACTIVITY_KIND_KERNEL"):
        raise Failure(f"{path} tells no nodes of graphs: trace with --cuda-graph-trace=node")
    strings = {row["id"]: row["value"] for row in read_table(db, "StringIds", ["id", "value"])}
    originals = read_originals(db)
    activities = []
    for kind, name in (("KERNEL", None), ("MEMCPY", "copy"), ("MEMSET", "fill")):
        activities += read_kind(db, f"CUPTI_ACTIVITY_KIND_{kind}", name, strings, originals)
    return activities


def read_kind(db, table, name, strings, originals):
    kernel_names = ["mangledName", "demangledName", "shortName"]
    wanted = ["start", "end", "globalPid", "correlationId", "graphNodeId"] + kernel_names
    for row in read_table(db, table, wanted):
        if not isinstance(row["start"], int) or not isinstance(row["end"], int) or row["end"] < row["start"]:
            times = f"{row['start']!r} to {row['end']!r}"
            raise Failure(f"{table} has a row from {times}, expected whole nanoseconds, the end not before the start")
        names = (name,) if name else tuple(str(strings[row[k]]) for k in kernel_names if row[k] in strings)
        process, node = process_of(row["globalPid"]), id_of(row["graphNodeId"])
        # The high half of a node's id is that of the executable graph.
        graph = (process, node >> 32) if node else None
        order = originals.get((process, node)) or originals.get((None, node)) or node
        yield Activity(names, row["start"], row["end"], graph, node, order, row["correlationId"])


# ------------------------------------------------------------------------------------------------------------- matching


def fits(name, names):
    """Whether a label's name is one of an activity's names, or the mangled name of the function that one of them names."""
    for full in names:
        plain = full.split("(")[0].split("<")[0].split("::")[-1].split(" ")[-1]
        mangled = name.startswith("_Z") and not full.startswith("_Z") and f"{len(plain)}{plain}" in name
        if name in (full, plain) or mangled:
            return True
    return False


def nodes_in_order(activities):
    """One activity of each node, in the order in which the nodes were captured."""
    first = {}
    for activity in activities:
        first.setdefault(activity.node, activity)
    return sorted(first.values(), key=lambda a: (a.order, a.node))


def index_by_id(pieces):
    """{id of a node: (number of its piece, its name, its label)}."""
    return {
        i: (number, name, label)
        for number, p in enumerate(pieces)
        for i, name, label in zip(p.ids, p.names, p.labels)
        if i is not None
    }


def match_by_id(nodes, pieces, index):
    """As match. Ids begin anew in every process, and an export may hold several: the names must fit, too."""
    found = [(node, *index[node.node]) for node in nodes if node.node in index]
    if not found or not all(fits(name, node.names) for node, _, name, _ in found):
        return [], {}
    return [pieces[i] for i in sorted({i for _, i, _, _ in found})], {node.node: label for node, _, _, label in found}


def match(activities, pieces, index):
    """(pieces that the graph may be, {node: label}). The labels are those of all of them, or none at all."""
    nodes = nodes_in_order(activities)
    by_id, labels = match_by_id(nodes, pieces, index)
    if by_id:
        return by_id, labels
    candidates = [
        p
        for p in pieces
        if all(i is None for i in p.ids)
        and len(p.names) == len(nodes)
        and all(fits(name, node.names) for name, node in zip(p.names, nodes))
    ]
    if not candidates or any(p.labels != candidates[0].labels for p in candidates):
        return candidates, {}
    return candidates, {node.node: label for node, label in zip(nodes, candidates[0].labels)}


def title_of(candidates, labels):
    def name(p):
        return p.key + (f", piece {p.index + 1} of {p.count}" if p.count > 1 else "")

    if not candidates:
        return "no graph of the labels"
    if len(candidates) == 1:
        return name(candidates[0])
    doubt = "which have the same phases" if labels else "which differ in their phases"
    return f"ambiguous: one of {len(candidates)} graphs, {doubt} ({name(candidates[0])} .. {name(candidates[-1])})"


# ------------------------------------------------------------------------------------------------------------- numbers


def quantile(values, q):
    """The smallest of the values that a share q of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


def busy_time(activities):
    """Nanoseconds in which at least one of them ran."""
    busy, until = 0, 0
    for a in sorted(activities, key=lambda a: a.start):
        busy += max(0, a.end - max(a.start, until))
        until = max(until, a.end)
    return busy


def summary(times, replays, total):
    """Of what each replay took; replays that have none of it count as 0."""
    values = times + [0] * (replays - len(times))
    return {
        "median_us": statistics.median(values) / 1e3,
        "p99_us": quantile(values, 0.99) / 1e3,
        "sum_us": sum(values) / 1e3,
        "share": sum(values) / total if total else 0.0,
    }


def sum_by(replays, key):
    """{what `key` says of an activity: [time of each replay that has it]}."""
    sums = collections.defaultdict(list)
    for replay in replays:
        of_replay = collections.Counter()
        for activity in replay:
            of_replay[key(activity)] += activity.end - activity.start
        for what, time in of_replay.items():
            sums[what].append(time)
    return sums


def layer_name(label):
    return f"layer {label[1]} {label[0]}" if label[1] is not None else label[0]


def without_cut_ends(replays):
    """A trace may begin or end within a replay: a first or last one that lacks nodes does not count."""
    most = max(len(replay) for replay in replays)
    begin = 1 if len(replays[0]) < most else 0
    end = len(replays) - (1 if len(replays[-1]) < most else 0)
    return replays[begin:end]


def describe(graph, activities, pieces, index):
    """What is told of one graph of the export."""
    candidates, labels = match(activities, pieces, index)
    by_launch = collections.defaultdict(list)
    for activity in activities:
        by_launch[activity.launch].append(activity)
    replays = without_cut_ends(sorted(by_launch.values(), key=lambda replay: min(a.start for a in replay)))
    total = sum(a.end - a.start for r in replays for a in r)
    spans = [max(a.end for a in r) - min(a.start for a in r) for r in replays]
    gaps = [span - busy_time(r) for span, r in zip(spans, replays)]
    order = {}  # of phases: as they stand in the graph
    for node in nodes_in_order(activities):
        label = labels.get(node.node, NO_LABEL)
        order.setdefault(label[0], len(order))
        order.setdefault(layer_name(label), len(order))
    phases = sum_by(replays, lambda a: labels.get(a.node, NO_LABEL)[0])
    layers = sum_by(replays, lambda a: layer_name(labels.get(a.node, NO_LABEL)))
    return {
        "graph": f"{graph[1]}" if not graph[0] else f"{graph[1]} of process {graph[0] & PID_MASK}",
        "title": title_of(candidates, labels),
        "keys": sorted({p.key for p in candidates}),
        "ambiguous": len(candidates) > 1,
        "nodes": len(nodes_in_order(activities)),
        "replays": len(replays),
        "cut_off": len(by_launch) - len(replays),
        "span": summary(spans, len(replays), sum(spans)),
        "gaps": summary(gaps, len(replays), sum(spans)),
        "total_us": total / 1e3,
        "unlabelled_share": sum(phases.get(NO_LABEL[0], [])) / total if total else 0.0,
        "phases": {p: summary(phases[p], len(replays), total) for p in sorted(phases, key=order.get)},
        "layers": {n: summary(layers[n], len(replays), total) for n in sorted(layers, key=order.get)},
    }


def analyse(activities, pieces, complaints=()):
    """All that is told, as plain data."""
    graphs = collections.defaultdict(list)
    outside = [a for a in activities if a.graph is None]
    for activity in activities:
        if activity.graph is not None:
            graphs[activity.graph].append(activity)
    index = index_by_id(pieces)
    described = [describe(graph, graphs[graph], pieces, index) for graph in sorted(graphs)]
    total = sum(g["total_us"] for g in described)
    unlabelled = sum(g["unlabelled_share"] * g["total_us"] for g in described)
    return {
        "graphs": described,
        "complaints": list(complaints),
        "total_us": total,
        "labelled_share": 1.0 - unlabelled / total if total else 0.0,
        "outside_us": sum(a.end - a.start for a in outside) / 1e3,
        "outside_count": len(outside),
    }


# ------------------------------------------------------------------------------------------------------------- printing


def print_rows(rows):
    print("| | median us | p99 us | sum us | share |\n|---|---:|---:|---:|---:|")
    for name, s in rows.items():
        print(f"| {name} | {s['median_us']:.2f} | {s['p99_us']:.2f} | {s['sum_us']:.1f} | {100 * s['share']:.1f}% |")


def print_report(report, with_layers):
    for complaint in report["complaints"]:
        print(f"# {complaint}")
    for g in report["graphs"]:
        print(f"\n## Graph {g['graph']}: {g['title']}")
        print(
            f"{g['replays']} replays of {g['nodes']} nodes, {g['span']['median_us']:.2f} us from the first to the last of them "
            f"(p99 {g['span']['p99_us']:.2f}), {g['gaps']['median_us']:.2f} us of it between nodes; without a label: "
            f"{100 * g['unlabelled_share']:.1f}%"
            + (f"; {g['cut_off']} more at the trace's ends lack nodes and are left out" if g["cut_off"] else "")
            + "\n"
        )
        print_rows(g["layers" if with_layers else "phases"])
    print(
        f"\n# in graphs: {report['total_us']:.1f} us, of which labels cover {100 * report['labelled_share']:.1f}%; "
        f"outside of graphs: {report['outside_us']:.1f} us in {report['outside_count']} records"
    )


def main(arguments):
    parser = argparse.ArgumentParser(description="GPU time of graph replays by phase")
    parser.add_argument("export", help="SQLite export of Nsight Systems")
    parser.add_argument("labels", help="graph_labels.json")
    parser.add_argument("--layers", action="store_true", help="each layer by itself")
    parser.add_argument("--json", action="store_true", help="everything, for programs")
    options = parser.parse_args(arguments)
    try:
        for path in (options.export, options.labels):
            if not os.path.isfile(path):
                raise Failure(f"{path} is no file")
        with open(options.labels, encoding="utf-8") as file:
            try:
                pieces, complaints = read_labels(file.read())
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise Failure(f"{options.labels} is not what cgr_runtime_graph_labels writes: {error}") from error
        report = analyse(read_activities(options.export), pieces, complaints)
        if not report["graphs"]:
            raise Failure(f"{options.export} has no nodes of graphs: trace with --cuda-graph-trace=node")
    except Failure as failure:
        print(failure, file=sys.stderr)
        return 2
    if options.json:
        json.dump(report, sys.stdout, indent=1)
        print()
    else:
        print_report(report, options.layers)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
