"""The records of the kept results: what the report reads.

python3 -B tests/profiles/parser_test.py [-v] [Parser]      from the project's root; Python 3.10 and nothing else
"""

import json
import re
import unittest

from common import PROFILES, RESULTS, Folder, report

import choose
import parse

KEPT = sorted(p for p in RESULTS.rglob("*") if p.is_file())


def value(path, metric, **case):
    """The only record of that metric whose case has these labels."""
    found = [r for r in parse.parse_file(RESULTS / path).records if r.metric == metric and case.items() <= r.case.items()]
    assert len(found) == 1, f"{path}: {len(found)} records of {metric} for {case}"
    return found[0]


# Columns of kept results that say what a row is for, if it is not only the first one.
LABELS = {
    "step_cost": ("requests", "batch", "loop"),
    "back_to_back": ("requests", "batch", "steps"),
    "flashmla_cost": ("requests", "lengths"),
    "fork_cost": ("forks", "side streams"),
    "wait_cost": ("mode", "step, ms"),
    "mixed_cost": ("mode, keys", "step"),
    "self_test_cost": ("seed", "layers"),
    "calibrate": ("KV tiles", "KV tiles per part", "kernel kind", "variant", "head dim", "fit over"),
}
# Records of what is printed next to the tables.
OUTSIDE_TABLES = ("node", "reading the spans of a step", "outside of graphs", "covered by labels")


def numbers_of_tables(text, labels):
    """Cells that begin with a digit, in columns that are neither a row's name nor a target."""
    numbers, columns = 0, []
    for line in text.splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells and not line.startswith("#"):
            columns = []
        elif cells and not columns:
            columns = cells
        elif cells and not cells[0].startswith("--"):
            names = set(labels) & set(columns) or set(columns[:1])
            values = [cell for c, cell in zip(columns, cells) if c not in names and not c.startswith(("target", "goal"))]
            numbers += sum(bool(re.match(r"-?\d", cell)) for cell in values)
    return numbers


class Parser(Folder):
    def test_every_kept_result_gives_records(self):
        self.assertGreater(len(KEPT), 40)
        for path in KEPT:
            with self.subTest(path.name):
                self.assertGreater(len(parse.parse_file(path).records), 0)

    def test_no_two_records_of_a_file_are_the_same(self):
        for path in KEPT:
            keys = [r.key() for r in parse.parse_file(path).records]
            self.assertEqual(len(keys), len(set(keys)), path)

    def test_every_number_of_a_table_becomes_a_record(self):
        counted = 0
        for path in KEPT:
            text = path.read_text(encoding="utf-8")
            # The oldest step_cost has two cases in a row, which share the bare launch.
            if "\n|---" not in text or path.parent.name == "h200_2026-11-20":
                continue
            result = parse.parse_file(path)
            records = [r for r in result.records if r.metric not in OUTSIDE_TABLES]
            self.assertEqual(len(records), numbers_of_tables(text, LABELS.get(result.program, ())), path)
            counted += 1
        self.assertGreater(counted, 10)

    def test_values_are_those_of_the_text(self):
        step = value("h200_2026-11-23/step_cost.txt", "prepare + launch", requests="64", batch="standing, unchanged")
        self.assertEqual((step.value, step.p99, step.unit), (1.74, 3.00, "us"))
        ratio = value("h200_2026-11-23/step_cost.txt", "ratio", requests="1024", batch="1/16 append a page")
        self.assertEqual((ratio.value, ratio.target, ratio.unit, ratio.better), (1.57, 1.40, "x", "lower"))
        attention = value("h200_2026-11-22/attention_cost.txt", "alone", case="decode bs8 len8k")
        self.assertEqual((attention.value, attention.p99, attention.unit), (72.7, None, "us"))
        nodes = value("h200_2026-11-23/back_to_back.txt", "fetch", requests="8")
        self.assertEqual(nodes.value, -0.39)
        self.assertEqual(
            value(
                "h200_2026-11-23/back_to_back.txt", "cgr - skeleton", requests="1024", batch="unchanged", steps="ahead"
            ).target,
            2.5,
        )
        self.assertEqual(value("h200_2026-11-23/kernel_cost.txt", "staged", step="8 prefills of 8192 tokens").value, 7.68)
        self.assertEqual(value("h200_2026-11-23/kernel_cost.txt", "node").value, 0.51)
        self.assertEqual(value("h200_2026-11-23/fa3_cost.txt", "vllm", decodes="992").value, 1.50)
        self.assertEqual(value("h200_2026-11-23/flashinfer_cost.txt", "planner", plan="decode, 4096 requests").target, None)
        mixed = value("h200_2026-11-22/mixed_cost.txt", "prepare + launch", step="piecewise")
        self.assertEqual((mixed.value, mixed.p99, mixed.target), (251.99, 286.82, 277.18))
        self.assertEqual(
            value("h200_2026-11-22/mixed_cost.txt", "device bytes each", **{"mode, keys": "full, mixed"}).unit, "bytes"
        )

    def test_values_of_texts_without_tables(self):
        self.assertEqual(value("runs.csv", "passed", commit="d621248", suite="tests").value, 5585)
        self.assertEqual(value("runs.csv", "failed", commit="d929090", suite="tests").value, 1)
        launch = value("h200_2026-11-22/llama_modes.txt", "launch", mode="piecewise", step="decode")
        self.assertEqual((launch.value, launch.p99), (39.90, 57.5))
        self.assertEqual(
            value("h200_2026-11-22/llama_modes.txt", "replays", mode="full", graph="full decode", requests="8").value, 190
        )
        self.assertEqual(value("h200_2026-11-22/llama_8b.txt", "launch", run="2", step="decode").value, 13.13)
        self.assertEqual(value("simulation_2026-11-22.txt", "steps").value, 1000319)
        self.assertEqual(value("coverage_2026-11-22.txt", "lines covered", folder="all").value, 97.6)
        self.assertEqual(value("standing_edits_2026-11-22.txt", "steps").value, 589812)
        padded = value("host_2026-11-23/metrics.prom", "cgr_key_padded_tokens_total", key="full 16r 16t q1 v0")
        self.assertEqual(padded.value, 720)

    def test_older_formats_give_the_same_records(self):
        old = value("h200_2026-11-20/step_cost.txt", "prepare + launch", requests="256", batch="1/16 append a page")
        self.assertEqual((old.value, old.p99), (1.72, 3.01))
        new = value("h200_2026-11-23/step_cost.txt", "prepare + launch", requests="256", batch="1/16 append a page")
        middle = value("h200_2026-11-21/step_cost.txt", "prepare + launch", requests="256", batch="1/16 append a page")
        self.assertEqual(old.key(), new.key())
        self.assertEqual(middle.key(), new.key())
        self.assertEqual(
            value("h200_2026-11-20/attention_cost.txt", "in steps", case="decode bs1 len8k").key(),
            value("h200_2026-11-22/attention_cost.txt", "in steps", case="decode bs1 len8k").key(),
        )

    def test_a_program_that_is_not_known_is_read_by_its_tables(self):
        text = "# program: profiles/new_cost\n\n## A\n| what | us | ms |\n|---|---:|---:|\n| x y | 1.5 (2.5) | 3 |\n"
        records = parse.parse_file(self.write("new_cost.txt", text)).records
        self.assertEqual(
            [(r.program, r.case, r.metric, r.value, r.p99, r.unit) for r in records],
            [("new_cost", {"what": "x y"}, "us", 1.5, 2.5, "us"), ("new_cost", {"what": "x y"}, "ms", 3, None, "ms")],
        )

    def test_nanoseconds_are_not_microseconds(self):
        text = "# program: tracing_cost\n| ns a step | median of 5 blocks | target |\n|---|---:|---:|\n| all | 30.3 | 50 |\n"
        (record,) = parse.parse_file(self.write("tracing_cost.txt", text)).records
        self.assertEqual((record.metric, record.value, record.unit, record.target), ("median", 30.3, "ns", 50))
        text = "# program: profiles/nvtx_cost\n\n## A range; nanoseconds\n| what | median |\n|---|---:|\n| a | 0.33 |\n"
        (record,) = parse.parse_file(self.write("nvtx_cost.txt", text)).records
        self.assertEqual((record.value, record.unit), (0.33, "ns"))

    def test_phases_are_read_in_each_form(self):
        plain = {
            "source": "s",
            "phases": [
                {"phase": "attention", "us_median": 3.5, "us_p99": 4, "share": 0.25},
                {"phase": "fetch", "us_median": 1},
            ],
        }
        joined = {"graphs": [{"title": "s", "phases": {"attention": {"median_us": 3.5, "p99_us": 4, "share": 0.25}}}]}
        table = "# step: s\n\n## GPU time\n| phase | nodes | us | share |\n|---|---:|---:|---:|\n"
        table += "| attention | 32.0 | 3.50 | 25.0% |\n"
        for name, text in (
            ("phases.json", json.dumps(plain)),
            ("graph_time.json", json.dumps(joined)),
            ("label_coverage.txt", table),
        ):
            chosen = choose.Chosen([parse.parse_file(self.write(name, text))])
            (panel,) = choose.phases(chosen)
            (phase, record, share), *rest = panel.rows
            self.assertEqual(panel.source, "s")
            self.assertEqual((phase, record.value, share), ("attention", 3.5, 25.0), name)
            self.assertEqual([(p, s) for p, _, s in rest], [("fetch", None)] if name == "phases.json" else [])

    def read(self, name, text):
        """[(case, metric, unit, value, better)] of a text."""
        records = parse.parse_file(self.write(name, text)).records
        return [(r.case, r.metric, r.unit, r.value, r.better) for r in records]

    def test_every_number_of_the_cost_of_timestamps(self):
        text = (
            "# program: timing_cost\n| timing | nodes | us of a step on the device | more | us for each stamp | "
            "us of prepare and launch |\n|---|---:|---:|---:|---:|---:|\n| 1 | 332 | 540.20 | 9.29 | 1.16 | 2.71 |\n\n"
            "| the clock | ns |\n|---|---:|\n| smallest | 160 |\n\nReading the spans of a step: 12.7 us (median of 1000).\n"
        )
        timing = {"timing": "1"}
        self.assertEqual(
            self.read("x.txt", text),
            [
                (timing, "nodes", "count", 332, ""),
                (timing, "step on the device", "us", 540.2, "lower"),
                (timing, "more", "us", 9.29, "lower"),
                (timing, "us for each stamp", "us", 1.16, "lower"),
                (timing, "prepare + launch", "us", 2.71, "lower"),
                ({"the clock": "smallest"}, "clock, ns", "ns", 160, "lower"),
                ({}, "reading the spans of a step", "us", 12.7, "lower"),
            ],
        )

    COVERAGE = (
        "# program: profiles/label_coverage\n# step: %s\n\n## GPU time of a replay, by phase\n"
        "| phase | nodes | us | share |\n|---|---:|---:|---:|\n| layer | 155.0 | %s | 99.0%% |\n\n"
        "# outside of graphs: 66.0 kernels, 3087.38 us for each replay\n"
        "# coverage: 100.00%% of 651.20 us in graphs, wanted: more than 95%%\n"
    )

    def test_every_number_of_a_coverage_by_labels(self):
        phase = {"source": "full, 32 layers", "phase": "layer"}
        self.assertEqual(
            self.read("x.txt", self.COVERAGE % ("full, 32 layers", "613.20")),
            [
                (phase, "time of a replay", "us", 613.2, "lower"),
                (phase, "share", "%", 99.0, ""),
                (phase, "nodes", "count", 155, ""),
                ({"source": "full, 32 layers"}, "outside of graphs", "us", 3087.38, "lower"),
                ({"source": "full, 32 layers"}, "covered by labels", "%", 100.0, "higher"),
            ],
        )

    def test_two_coverages_by_labels_are_two_panels(self):
        self.write("r/label_coverage.txt", self.COVERAGE % ("full", "700.5"))
        self.write("r/label_coverage_piecewise.txt", self.COVERAGE % ("piecewise", "613.2"))
        chosen = choose.Chosen(parse.load([self.folder / "r"])[0])
        panels = [(p.result.kind, p.source, [(n, r.value) for n, r, _ in p.rows]) for p in choose.phases(chosen)]
        self.assertEqual(
            panels,
            [
                ("label_coverage", "full", [("layer", 700.5)]),
                ("label_coverage_piecewise", "piecewise", [("layer", 613.2)]),
            ],
        )
        (named,) = choose.phases(chosen, f"{self.folder}/r/label_coverage_piecewise.txt")
        self.assertEqual((named.source, named.outside.value), ("piecewise", 3087.38))

    def test_the_target_is_of_its_column_alone(self):
        text = "# program: profiles/step_cost\n| requests | both | ratio | target |\n|---|---|---|---|\n"
        text += "| 8 | 3.5 (9) | 1.2x | 1.4 |\n"
        records = parse.parse_file(self.write("x.txt", text)).records
        self.assertEqual([(r.metric, r.target) for r in records], [("prepare + launch", None), ("ratio", 1.4)])

    ATTENTION = (
        "# program: profiles/attention_cost\n# device: NVIDIA H200\n\n"
        "| case | floor us | alone us | over the floor | GB/s | TFLOP/s | cold us | with append us | layers | "
        "in steps: us per layer | over the floor | target us | met | error | lse error |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|---:|---:|\n"
        "| decode bs8 len8k | 59.0 | 70.6 | 1.20x | 3802.1 | 15.21 | 68.7 | 72.5 | 16 | 75.1 | 1.27x | 66.2 | no | 0.265% | "
        "0.0000007 |\n"
        "| prefill 4096 (causal) | 211.5 | 544.6 | 2.57x | 30.8 | 252.4 | 550.0 | 549.0 | 16 | 560.1 | 2.65x | - | - | 0.311% | "
        "0.0000012 |\n\n## Other shapes\n\n"
        "| case | floor us | alone us | over the floor | GB/s | TFLOP/s | cold us | with append us | target us | met | error | "
        "lse error |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---|---:|---:|\n"
        "| hd64 bs8 len8k | 29.4 | 40.1 | 1.36x | 3347.2 | 13.39 | 42.2 | 43.3 | - | - | 0.286% | 0.0000010 |\n"
    )

    def test_attention_of_other_shapes_is_apart(self):
        records = parse.parse_file(self.write("x/attention_cost.txt", self.ATTENTION)).records
        first = {r.metric: r for r in records if r.case == {"case": "decode bs8 len8k"}}
        for metric in ("floor", "alone", "alone over the floor", "cold", "in steps", "in steps over the floor", "layers"):
            old = value("h200_2026-11-24/10a860d/attention_cost.txt", metric, case="decode bs8 len8k")
            self.assertEqual((first[metric].key(), first[metric].unit), (old.key(), old.unit))
        self.assertEqual((first["GB/s"].value, first["GB/s"].unit, first["GB/s"].better), (3802.1, "GB/s", "higher"))
        self.assertEqual((first["with append"].value, first["error"].unit), (72.5, "%"))
        self.assertEqual(
            [(r.metric, r.case["case"], r.target) for r in records if r.target], [("alone", "decode bs8 len8k", 66.2)]
        )
        self.assertEqual(len(records), numbers_of_tables(self.ATTENTION, ()))
        chosen = choose.Chosen(parse.load([self.folder / "x"])[0])
        rows, _ = choose.attention(chosen, choose.read_peers(PROFILES / "peers.json")["attention"])
        self.assertEqual([row[0] for row in rows], ["decode bs8 len8k", "prefill 4096 (causal)"])
        ((case, of),) = choose.other_shapes(chosen)
        self.assertEqual((case, of["alone"].value, of["alone over the floor"].value), ("hd64 bs8 len8k", 40.1, 1.36))
        made = report(self.folder / "x", "--no-plots", "--out", self.folder / "r.html")
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        self.assertRegex((self.folder / "r.html").read_text(encoding="utf-8"), r'<td>hd64 bs8 len8k</td><td class="n">29.4</td>')

    def test_columns_say_their_units(self):
        for column, unit, better in (
            ("ms of a capture", "ms", "lower"),
            ("terms", "us", "lower"),
            ("bytes each", "bytes", "lower"),
            ("largest error", "%", "lower"),
            ("nodes", "count", ""),
        ):
            ((_, _, *found),) = self.read("x.txt", f"# program: profiles/x\n| what | {column} |\n|---|---|\n| a b | 4 |\n")
            self.assertEqual(found, [unit, 4.0, better], column)

    def test_what_a_calibration_has_in_brackets_is_no_tail(self):
        text = "# program: profiles/calibrate\n\n## A\n| variant | us |\n|---|---|\n| a | 4.5 (9.5) |\n"
        (record,) = parse.parse_file(self.write("calibrate.txt", text)).records
        self.assertEqual((record.value, record.p99), (4.5, None))

    def test_findings_of_checkers(self):
        text = "5 passed, 0 failed, 1 skipped\n= ERROR SUMMARY: 2 errors\n= RACECHECK SUMMARY: 3 hazards displayed\n"
        self.assertEqual(
            self.read("racecheck.txt", text),
            [
                ({}, "passed", "count", 5, ""),
                ({}, "failed", "count", 0, "lower"),
                ({}, "skipped", "count", 1, ""),
                ({}, "programs under a checker", "count", 2, ""),
                ({}, "findings of the checker", "count", 5, "lower"),
            ],
        )

    def test_a_page_of_metrics(self):
        text = (
            'cgr_info{engine="e",device="A \\"B\\""} 1\ncgr_wait_seconds_bucket{le="0.1"} 3\ncgr_wait_seconds_sum 1.5e-05\n'
            'cgr_wait_seconds_count 3\ncgr_staged_bytes_total{engine="a\\"b"} 25\n'
        )
        self.assertEqual(
            self.read("metrics.prom", text),
            [
                ({}, "cgr_wait_seconds_sum", "s", 1.5e-05, ""),
                ({}, "cgr_wait_seconds_count", "count", 3, ""),
                ({"engine": 'a"b'}, "cgr_staged_bytes_total", "bytes", 25, ""),
            ],
        )

    def test_times_that_tests_were_repeated(self):
        self.assertEqual(
            self.read("planner_20000.txt", " 19998 [       OK ] A.b\n     2 [  FAILED  ] A.b\n"),
            [({"test": "A.b"}, "times passed", "count", 19998, "")],
        )

    def test_distances_from_transformers(self):
        tree = {"date": "2026-11-22T10:11:12Z", "results": {"prefill": {"largest error": 0.5, "tokens": 7, "shape": 3}}}
        case = {"of": "prefill"}
        path = self.write("transformers_cuda.json", json.dumps(tree))
        self.assertEqual(
            self.read("transformers_cuda.json", json.dumps(tree)),
            [(case, "largest error", "", 0.5, "lower"), (case, "tokens", "", 7, "")],
        )
        self.assertEqual(parse.parse_file(path).head["date"], "2026-11-22")

    def test_graphs_that_are_called_the_same_are_numbered(self):
        graph = {"title": "t", "phases": {"fetch": {"median_us": 1.0, "p99_us": 2.0, "share": 0.5}}}
        found = self.read("phases.json", json.dumps({"graphs": [graph, graph, dict(graph, title="u")]}))
        self.assertEqual([case["source"] for case, metric, *_ in found if metric == "share"], ["t (1)", "t (2)", "u"])

    def test_the_first_line_of_a_head_counts(self):
        path = self.write("d_2026-11-20/tests_2026-11-21.txt", "# commit: a\n# commit: b\n5 passed, 0 failed, 0 skipped\n")
        result = parse.parse_file(path)
        self.assertEqual((result.head, result.kind), ({"commit": "a", "date": "2026-11-20"}, "tests"))

    def test_what_the_example_says_of_its_graphs(self):
        found = self.read("llama.txt", "full 8 8 40 1.25 190 7.5 captured\n")
        self.assertEqual(found[-1][1:], ("mean requests", "requests", 7.5, ""))
        self.assertEqual(found[1][1:], ("capture", "ms", 1.25, "lower"))

    EXAMPLE = """cgr 0.11.0 on the host device, 2 processors

step     graph        steps   tokens   padded prepare us      p99 launch us      p99  staged
decode   full           294     1593     1683       1.28     6.15      2.39    14.82      72

graph      requests  tokens  queries  nodes capture ms  replays mean requests  state
full              8       8        1     49       0.03      187           7.6  ready
full              8       8    mixed     49       0.05        0           0.0  over budget

prompt         695 tokens      2,081/s   first token after 75.01 ms
generated    1,680 tokens        903/s   between tokens 6.15 ms (p99 34.12 ms)
host time per step: replayed 1.7 us, eager 219.1 us (128.9 times), bare launch 1.2 us
"""

    def test_what_the_example_prints(self):
        records = self.read("llama.txt", self.EXAMPLE)
        found = {(tuple(sorted(case.items())), metric): (value, unit) for case, metric, unit, value, _ in records}
        self.assertEqual(found[(("of", "generated"),), "tokens per second"], (903, "1/s"))
        self.assertEqual(found[(("of", "prompt"),), "time to the first token"], (75.01, "ms"))
        self.assertEqual(found[(("of", "generated"),), "time between tokens"], (6.15, "ms"))
        for how, us in (("replayed", 1.7), ("eager", 219.1), ("bare launch", 1.2)):
            self.assertEqual(found[(("step", how),), "host time per step"], (us, "us"))
        self.assertEqual(found[(("graph", "full"), ("step", "decode")), "launch"], (2.39, "us"))
        for which, replays in (("decode", 187), ("mixed", 0)):
            key = (("graph", f"full {which}"), ("requests", "8"), ("tokens", "8"))
            self.assertEqual(found[key, "replays"], (replays, "count"))

    def test_a_file_may_say_what_it_is_by_the_program_that_it_names(self):
        found = self.read("coverage_of_labels.txt", self.COVERAGE % ("full", "613.2"))
        self.assertEqual([value for _, metric, _, value, _ in found if metric == "time of a replay"], [613.2])

    def test_captures_are_apart_from_steps(self):
        text = "# program: profiles/step_cost\n\n## Captures\n| requests | ms each |\n|---|---|\n| 8 | 1.5 |\n"
        self.assertEqual(self.read("x.txt", text), [({"table": "capture", "requests": "8"}, "ms each", "ms", 1.5, "lower")])

    def test_of_one_kind_the_newest_date_counts(self):
        for day, number in (("20", 1), ("22", 3), ("21", 2)):
            self.write(f"r/tests_2026-11-{day}.txt", f"{number} passed, 0 failed, 0 skipped\n")
        (result,), unread = parse.load([self.folder / "r"])
        self.assertEqual((result.records[0].value, result.head["date"], unread), (3, "2026-11-22", []))

    def test_what_cannot_be_read_says_why(self):
        for name, text, why in (
            ("step_cost.txt", "# program: profiles/step_cost\nSegmentation fault\n", "no table"),
            (
                "step_cost.txt",
                "# program: profiles/step_cost\n\n| requests | ratio |\n|---:|---:|\n| 1 |\n",
                "line 5 has 1 cells",
            ),
            ("notes.txt", "hello\n", "says what it is"),
            ("tests.txt", "== tests/base\n", "none of the numbers"),
            ("phases.json", '{"phases": [{}]}', "KeyError"),
            ("phases.json", "{", "JSONDecodeError"),
        ):
            with self.assertRaisesRegex(parse.Unreadable, why):
                parse.parse_file(self.write(name, text))
        (self.folder / "step_cost.txt").write_bytes(b"\xff\xfe\x00")
        with self.assertRaisesRegex(parse.Unreadable, "not a text"):
            parse.parse_file(self.folder / "step_cost.txt")


if __name__ == "__main__":
    unittest.main()
