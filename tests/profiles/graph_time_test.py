"""profiles/graph_time.py against made-up exports with known times.

    python3 graph_time_test.py graph_time.py
"""

import contextlib
import importlib.util
import io
import json
import os
import sqlite3
import sys
import tempfile
import unittest

PROCESS = 77 << 24
MANGLED = {"prologue": "_ZN3cgr15prologue_kernelE", "attention": "_Z16attention_kernelILi128EEv4Args"}
DEMANGLED = {"prologue": "cgr::prologue_kernel", "attention": "void attention_kernel<128>(Args)"}


def load(path):
    spec = importlib.util.spec_from_file_location("graph_time", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["graph_time"] = module
    spec.loader.exec_module(module)
    return module


def name_of(node):
    return MANGLED.get(node, node)


class Export:
    """An export of Nsight Systems in a file."""

    def __init__(self, path, kernel_columns=("mangledName", "demangledName", "shortName"), originals=True):
        self.path, self.kernel_columns, self.strings = path, kernel_columns, {}
        self.db = sqlite3.connect(path)
        columns = ", ".join(f"{c} INTEGER" for c in kernel_columns)
        self.db.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        self.db.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, globalPid INTEGER, correlationId INTEGER, "
            f"graphNodeId INTEGER, {columns})"
        )
        if originals:
            self.db.execute(
                "CREATE TABLE CUDA_GRAPH_NODE_EVENTS (globalTid INTEGER, graphNodeId INTEGER, originalGraphNodeId INTEGER)"
            )

    def string(self, value):
        if value not in self.strings:
            self.strings[value] = len(self.strings) + 1
            self.db.execute("INSERT INTO StringIds VALUES (?, ?)", (self.strings[value], value))
        return self.strings[value]

    def kernel(self, name, node, launch, start, end):
        all_names = {"mangledName": name_of(name), "demangledName": DEMANGLED.get(name, name), "shortName": name}
        names = [self.string(all_names[c]) for c in self.kernel_columns]
        row = [start, end, PROCESS, launch, node] + names
        self.db.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * len(row))})", row)

    def other(self, kind, node, launch, start, end):
        table = f"CUPTI_ACTIVITY_KIND_{kind}"
        self.db.execute(
            f"CREATE TABLE IF NOT EXISTS {table} (start INTEGER, end INTEGER, globalPid INTEGER, correlationId INTEGER, "
            "graphNodeId INTEGER)"
        )
        self.db.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?)", (start, end, PROCESS, launch, node))

    def node(self, name, node, launch, start, end):
        kinds = {"copy": "MEMCPY", "fill": "MEMSET"}
        if name in kinds:
            self.other(kinds[name], node, launch, start, end)
        else:
            self.kernel(name, node, launch, start, end)

    def original(self, node, original):
        self.db.execute("INSERT INTO CUDA_GRAPH_NODE_EVENTS VALUES (?, ?, ?)", (PROCESS + 5, node, original))

    def graph(self, number, names, launches, low=None, made_from=None):
        """Replays of executable graph `number`: node k runs for k + 1 us, 1 us after the last one. `low`: the nodes' own numbers;
        `made_from`: the graph that they were captured in, in order."""
        low = low or list(range(len(names)))
        for k in range(len(names)) if made_from is not None else []:
            self.original(number << 32 | low[k], made_from << 32 | k)
        for launch in launches:
            at = launch * 1000000
            for k, name in enumerate(names):
                self.node(name, number << 32 | low[k], launch, at, at + (k + 1) * 1000)
                at += (k + 1) * 1000 + 1000

    def close(self):
        self.db.commit()
        self.db.close()


def graph_labels(key, pieces, unlabelled=None, ids=None):
    runs = [[dict(zip(("phase", "layer", "backend", "nodes"), run)) for run in piece] for piece in pieces]
    if ids:
        for run, numbers in zip(runs[0], ids):
            run["ids"] = numbers
    return {"index": 0, "key": key, "unlabelled": unlabelled, "pieces": runs}


PLAIN = [
    ("prologue", None, None, [name_of("prologue")]),
    ("record", None, None, ["copy", "event", "fill"]),
    ("attention", 0, "cgr", [name_of("attention")]),
    ("layer", 0, None, ["gemm"]),
    ("attention", 1, "cgr", [name_of("attention")]),
    ("epilogue", None, None, ["epilogue"]),
]
NODES = ["prologue", "copy", "fill", "attention", "gemm", "attention", "epilogue"]


class GraphTime(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.labels = os.path.join(self.folder.name, "labels.json")

    def export(self, **options):
        path = os.path.join(self.folder.name, f"export{len(os.listdir(self.folder.name))}.sqlite")
        return Export(path, **options)

    def run_main(self, export, graphs, *options):
        """What the program prints, with its status."""
        export.close()
        with open(self.labels, "w", encoding="utf-8") as file:
            json.dump({"version": "x", "graphs": graphs}, file)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = graph_time.main([export.path, self.labels, *options])
        return status, out.getvalue(), err.getvalue()

    def report(self, export, graphs):
        status, out, err = self.run_main(export, graphs, "--json")
        self.assertEqual((status, err), (0, ""))
        return json.loads(out)

    def expect_plain(self, g, replays):
        phases = {name: (p["median_us"], p["p99_us"], p["sum_us"]) for name, p in g["phases"].items()}
        times = {"prologue": 1, "record": 5, "attention": 10, "layer": 5, "epilogue": 7}
        self.assertEqual(phases, {name: (us, us, us * replays) for name, us in times.items()})
        self.assertEqual(list(phases), list(times), "in the order of the graph")
        self.assertAlmostEqual(g["phases"]["attention"]["share"], 10 / 28)
        self.assertEqual(g["layers"]["layer 1 attention"]["median_us"], 6)
        self.assertEqual((g["replays"], g["nodes"], g["unlabelled_share"]), (replays, 7, 0))
        self.assertEqual((g["span"]["median_us"], g["gaps"]["median_us"]), (34, 6))

    def test_phases_of_a_graph(self):
        export = self.export()
        export.graph(9, NODES, [1, 2, 3], made_from=4)
        export.kernel("elsewhere", None, 50, 100, 5100)
        report = self.report(export, [graph_labels("full 8r", [PLAIN])])
        (g,) = report["graphs"]
        self.expect_plain(g, 3)
        self.assertEqual((g["keys"], g["ambiguous"]), (["full 8r"], False))
        self.assertEqual((report["outside_us"], report["outside_count"], report["labelled_share"]), (5, 1, 1))

    def test_nodes_whose_ids_are_out_of_order(self):
        export = self.export()
        export.graph(9, NODES, [1, 2], low=[6, 3, 5, 0, 1, 4, 2], made_from=4)
        self.expect_plain(self.report(export, [graph_labels("full 8r", [PLAIN])])["graphs"][0], 2)

    def test_out_of_order_and_no_originals(self):
        export = self.export(originals=False)
        export.graph(9, NODES, [1], low=[6, 3, 5, 0, 1, 4, 2])
        (g,) = self.report(export, [graph_labels("full 8r", [PLAIN])])["graphs"]
        self.assertEqual((g["keys"], g["unlabelled_share"]), ([], 1), "no label rather than a wrong one")

    def test_without_the_table_of_originals(self):
        export = self.export(originals=False)
        export.graph(9, NODES, [1])
        self.expect_plain(self.report(export, [graph_labels("full 8r", [PLAIN])])["graphs"][0], 1)

    def test_names_that_are_not_mangled(self):
        for columns in [("demangledName",), ("shortName",), ("demangledName", "shortName")]:
            export = self.export(kernel_columns=columns)
            names = dict(DEMANGLED)
            DEMANGLED["prologue"] = "cgr::prologue_kernel(int)"
            if columns == ("shortName",):
                nodes = [f"{n}_kernel" if n in names else n for n in NODES]
                export.graph(9, nodes, [1])
            else:
                export.graph(9, NODES, [1])
            self.expect_plain(self.report(export, [graph_labels("full 8r", [PLAIN])])["graphs"][0], 1)
            DEMANGLED.update(names)

    def test_two_graphs_alike(self):
        export = self.export()
        export.graph(9, NODES, [1])
        same = [graph_labels("full 8r", [PLAIN]), graph_labels("full 16r", [PLAIN])]
        (g,) = self.report(export, same)["graphs"]
        self.assertTrue(g["ambiguous"])
        self.assertEqual(g["keys"], ["full 16r", "full 8r"])
        self.assertIn("which have the same phases", g["title"])
        self.expect_plain(g, 1)

    def test_two_graphs_alike_with_other_phases(self):
        export = self.export()
        export.graph(9, NODES, [1])
        other = [("fetch", None, None, run[3]) if run[0] == "epilogue" else run for run in PLAIN]
        (g,) = self.report(export, [graph_labels("full 8r", [PLAIN]), graph_labels("full 16r", [other])])["graphs"]
        self.assertTrue(g["ambiguous"])
        self.assertIn("which differ in their phases", g["title"])
        self.assertEqual(g["unlabelled_share"], 1)

    def test_ids_decide(self):
        export = self.export()
        export.graph(9, NODES, [1])
        export.graph(10, NODES, [2])

        def ids(graph):
            numbers = iter([graph << 32 | k for k in range(7)])
            return [[next(numbers) if name != "event" else 0 for name in run[3]] for run in PLAIN]

        graphs = [graph_labels("full 16r", [PLAIN], ids=ids(10)), graph_labels("full 8r", [PLAIN], ids=ids(9))]
        first, second = self.report(export, graphs)["graphs"]
        self.assertEqual((first["keys"], second["keys"]), (["full 8r"], ["full 16r"]))
        self.expect_plain(first, 1)

    def test_pieces(self):
        export = self.export()
        export.graph(20, ["prologue", "gemm"], [1, 4])
        export.graph(21, ["gemm"], [2, 5])
        export.graph(22, ["gemm", "epilogue"], [3, 6])
        pieces = [
            [("prologue", None, None, [name_of("prologue")]), ("record", None, None, ["gemm"])],
            [("layer", 0, None, ["gemm"])],
            [("layer", 1, None, ["gemm"]), ("epilogue", None, None, ["epilogue"])],
        ]
        graphs = self.report(export, [graph_labels("piecewise 8r", pieces)])["graphs"]
        titles = [f"piecewise 8r, piece {i} of 3" for i in (1, 2, 3)]
        self.assertEqual([g["title"] for g in graphs], titles)
        self.assertEqual(graphs[2]["phases"]["epilogue"]["median_us"], 2)
        self.assertEqual(graphs[1]["layers"]["layer 0 layer"]["sum_us"], 2)

    def test_percentiles_and_gaps(self):
        export = self.export()
        for launch in range(1, 101):
            export.kernel("gemm", 9 << 32, launch, launch * 10000, launch * 10000 + 10 * launch)
            export.kernel("gemm", 9 << 32 | 1, launch, launch * 10000 + 5, launch * 10000 + 10 * launch + 5)  # overlaps
        (g,) = self.report(export, [graph_labels("k", [[("record", None, None, ["gemm", "gemm"])]])])["graphs"]
        self.assertEqual(g["phases"]["record"]["p99_us"], 2 * 0.99)
        self.assertAlmostEqual(g["phases"]["record"]["median_us"], 2 * 0.505)
        self.assertEqual(g["gaps"]["sum_us"], 0)
        self.assertAlmostEqual(g["span"]["p99_us"], 0.995)

    def test_concurrent_nodes_count_once_as_busy(self):
        export = self.export()
        for k, (start, end) in enumerate([(0, 10000), (1000, 3000), (4000, 6000), (12000, 13000)]):
            export.kernel("gemm", 9 << 32 | k, 1, start, end)
        (g,) = self.report(export, [graph_labels("k", [[("record", None, None, ["gemm"] * 4)]])])["graphs"]
        self.assertEqual((g["span"]["sum_us"], g["gaps"]["sum_us"]), (13, 2))
        self.assertAlmostEqual(g["gaps"]["share"], 2 / 13)

    def test_a_replay_without_a_phase_counts_as_nothing(self):
        export = self.export()
        export.graph(9, ["gemm", "epilogue"], [1, 6])
        for launch in (2, 3, 4):
            export.kernel("gemm", 9 << 32, launch, launch * 1000000, launch * 1000000 + 1000)
        labels = [("record", None, None, ["gemm"]), ("epilogue", None, None, ["epilogue"])]
        (g,) = self.report(export, [graph_labels("k", [labels])])["graphs"]
        epilogue = g["phases"]["epilogue"]
        self.assertEqual((epilogue["median_us"], epilogue["p99_us"], epilogue["sum_us"]), (0, 2, 4))
        self.assertEqual(g["phases"]["record"]["sum_us"], 5)

    def test_percentiles_are_of_the_values(self):
        self.assertEqual(graph_time.quantile(list(range(1, 701)), 0.99), 693)
        self.assertEqual(graph_time.quantile(list(range(1, 1002)), 0.999), 1000)
        self.assertEqual(graph_time.quantile([7], 0.99), 7)

    def test_kernels_whose_names_begin_like_those_of_idle_nodes(self):
        idle = ["event", "host function 0x55d0", "host function", "child graph", "node"]
        busy = ["node_scatter", "event_filter", "nodes", "child graphs"]
        export = self.export()
        export.graph(9, busy, [1])
        (g,) = self.report(export, [graph_labels("k", [[("record", None, None, busy + idle)]])])["graphs"]
        self.assertEqual((g["keys"], g["unlabelled_share"]), (["k"], 0))

    def test_kernels_whose_names_end_alike(self):
        """The mangled name has the length of the plain one in front of it: 16attention_kernel is no kernel."""
        export = self.export(kernel_columns=("shortName",))
        export.graph(9, ["kernel"], [1])
        (g,) = self.report(export, [graph_labels("k", [[("attention", 0, "cgr", [MANGLED["attention"]])]])])["graphs"]
        self.assertEqual((g["keys"], g["unlabelled_share"]), ([], 1))

    def test_ids_of_several_pieces_and_of_nodes_without_a_label(self):
        export = self.export()
        export.graph(9, ["gemm", "gemm", "gemm"], [1])
        pieces = [[("record", None, None, ["gemm"])], [("layer", 0, None, ["gemm"])]]
        labels = graph_labels("k", pieces)
        labels["pieces"][0][0]["ids"], labels["pieces"][1][0]["ids"] = [9 << 32], [9 << 32 | 1]
        (g,) = self.report(export, [labels])["graphs"]
        sums = {name: p["sum_us"] for name, p in g["phases"].items()}
        self.assertEqual(sums, {"record": 1, "layer": 2, "no label": 3})
        self.assertEqual(g["unlabelled_share"], 0.5)

    def test_pieces_with_ids_are_not_matched_by_name(self):
        export = self.export()
        export.graph(9, ["gemm"], [1])
        other = graph_labels("k", [[("record", None, None, ["gemm"])]], ids=[[10 << 32]])
        (g,) = self.report(export, [other])["graphs"]
        self.assertEqual((g["keys"], g["title"]), ([], "no graph of the labels"))

    def test_originals_without_a_process(self):
        export = self.export()
        export.graph(9, NODES, [1], low=[6, 3, 5, 0, 1, 4, 2], made_from=4)
        export.db.execute("UPDATE CUDA_GRAPH_NODE_EVENTS SET globalTid = NULL")
        self.expect_plain(self.report(export, [graph_labels("full 8r", [PLAIN])])["graphs"][0], 1)

    def test_ids_of_another_process(self):
        """Ids start over in every process: kernels with other names are not those of the labels."""
        runs = [("prologue", None, None, ["a"]), ("epilogue", None, None, ["b"])]
        export = self.export(originals=False)
        export.graph(9, ["other_a", "other_b"], [1])
        graphs = [graph_labels("full 8r", [runs], ids=[[9 << 32], [9 << 32 | 1]])]
        (g,) = self.report(export, graphs)["graphs"]
        self.assertEqual((g["keys"], g["unlabelled_share"]), ([], 1))

    def test_ids_beyond_what_sqlite_calls_positive(self):
        runs = [("prologue", None, None, ["a"]), ("epilogue", None, None, ["b"])]
        high = 1 << 63 | 5 << 32
        export = self.export(originals=False)
        for k, name in enumerate("ab"):
            export.kernel(name, (high | k) - (1 << 64), 1, 1000 * k, 1000 * k + 500)
        (g,) = self.report(export, [graph_labels("full 8r", [runs], ids=[[high], [high | 1]])])["graphs"]
        self.assertEqual((g["keys"], g["unlabelled_share"]), (["full 8r"], 0))

    def test_replays_cut_off_by_the_ends_of_the_trace(self):
        export = self.export()
        export.graph(9, NODES, [2, 3, 4], made_from=4)
        export.node("epilogue", 9 << 32 | 6, 1, 500000, 507000)
        export.node("prologue", 9 << 32, 5, 5000000, 5001000)
        (g,) = self.report(export, [graph_labels("full 8r", [PLAIN])])["graphs"]
        self.expect_plain(g, 3)
        self.assertEqual(g["cut_off"], 2)

    def test_rows_that_make_no_sense(self):
        for start, end, node in ((5, 4, 9 << 32), (None, 4, 9 << 32), ("x", 4, 9 << 32), (1, 2, "x")):
            export = self.export()
            export.kernel("a", node, 1, start, end)
            status, out, err = self.run_main(export, [graph_labels("full 8r", [PLAIN])])
            self.assertEqual((status, out, err.count("\n")), (2, "", 1), (start, end, node))
            self.assertIn("expected", err)

    def test_labels_that_make_no_sense(self):
        for runs in ([("prologue", None, None, [7])], [("prologue", None, None, None)], [None], 7):
            graph = graph_labels("full 8r", [PLAIN])
            graph["pieces"] = [runs] if runs == 7 or runs == [None] else graph_labels("x", [runs])["pieces"]
            export = self.export()
            export.graph(9, NODES, [1])
            status, out, err = self.run_main(export, [graph])
            self.assertEqual((status, out, err.count("\n")), (2, "", 1), runs)
        graph = graph_labels("full 8r", [[("prologue", None, None, ["a", "b"])]], ids=[[1]])
        export = self.export()
        export.graph(9, NODES, [1])
        self.assertIn("2 nodes and 1 ids", self.run_main(export, [graph])[2])

    def test_any_path_is_a_path(self):
        for name in ("50%20.sqlite", "a#b", "a?b", "a b", "%"):
            export = Export(os.path.join(self.folder.name, name))
            export.graph(9, NODES, [1])
            self.expect_plain(self.report(export, [graph_labels("full 8r", [PLAIN])])["graphs"][0], 1)

    def test_graphs_without_labels_are_told(self):
        export = self.export()
        export.graph(9, NODES, [1])
        status, out, _ = self.run_main(export, [graph_labels("full 8r", [], unlabelled="no memory")])
        self.assertEqual(status, 0)
        self.assertIn("full 8r has no labels: no memory", out)
        self.assertIn("no graph of the labels", out)
        self.assertIn("labels cover 0.0%", out)

    def test_what_it_prints(self):
        export = self.export()
        export.graph(9, NODES, [1, 2])
        status, out, _ = self.run_main(export, [graph_labels("full 8r", [PLAIN])], "--layers")
        self.assertEqual(status, 0)
        self.assertIn("## Graph 9 of process 77: full 8r\n2 replays of 7 nodes, 34.00 us", out)
        self.assertIn("| layer 0 attention | 4.00 | 4.00 | 8.0 | 14.3% |", out)
        self.assertIn("labels cover 100.0%", out)

    def expect_failure(self, export, text, labels=None):
        status, out, err = self.run_main(export, labels or [graph_labels("full 8r", [PLAIN])])
        self.assertEqual((status, out), (2, ""))
        self.assertIn(text, err)

    def test_tables_that_are_missing(self):
        export = self.export()
        export.db.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
        self.expect_failure(export, "no table CUPTI_ACTIVITY_KIND_KERNEL")
        export = self.export()
        export.db.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
        export.db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER)")
        self.expect_failure(export, "--cuda-graph-trace=node")
        export = self.export()
        export.kernel("elsewhere", None, 50, 100, 5100)
        self.expect_failure(export, "has no nodes of graphs")

    def test_bad_files(self):
        export = self.export()
        export.graph(9, NODES, [1])
        self.expect_failure(export, "is not what cgr_runtime_graph_labels writes", [{"key": "full 8r"}])
        with open(export.path, "w", encoding="utf-8") as file:
            file.write("no database, but long enough for the header of one" * 10)
        err = io.StringIO()
        with open(self.labels, "w", encoding="utf-8") as file:
            file.write('{"graphs": []}')
        with contextlib.redirect_stderr(err):
            self.assertEqual(graph_time.main([export.path, self.labels]), 2)
            self.assertEqual(graph_time.main([export.path + ".not", self.labels]), 2)
        self.assertIn("cannot be read", err.getvalue())
        self.assertIn("is no file", err.getvalue())


if __name__ == "__main__":
    graph_time = load(sys.argv.pop(1))
    unittest.main()
