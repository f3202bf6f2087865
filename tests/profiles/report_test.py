"""The report over the kept results: what it reads, how it compares, what its page and plots show.

python3 -B tests/profiles/report_test.py [-v] [Class]       from the project's root; Python 3.10 and nothing else, but for Plots,
                                                            which needs matplotlib
"""

import importlib.util
import json
import os
import pathlib
import re
import unittest

from common import PROFILES, RESULTS, Folder, report, run

import choose
import compare
import parse
import report as page_maker

KEPT = sorted(p for p in RESULTS.rglob("*") if p.is_file())
HAS_PLOTS = importlib.util.find_spec("matplotlib") is not None


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
BESIDE_TABLES = ("node", "reading the spans of a step", "outside of graphs", "covered by labels")


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
            records = [r for r in result.records if r.metric not in BESIDE_TABLES]
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
        self.assertEqual(value("h200_2026-11-23/tests.txt", "passed").value, 3818)
        self.assertEqual(value("h200_2026-11-22/tests.txt", "failed").value, 1)
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

    def test_a_program_that_nobody_knows_is_read_by_its_tables(self):
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


class Comparison(Folder):
    def copies(self, change):
        """Two folders with the same result, the second one changed."""
        text = (RESULTS / "h200_2026-11-23" / "step_cost.txt").read_text(encoding="utf-8")
        self.write("old/step_cost.txt", text)
        self.write("new/step_cost.txt", change(text))
        return parse.load([self.folder / "old"])[0], parse.load([self.folder / "new"])[0]

    def test_what_is_the_same_has_not_changed(self):
        changes = compare.compare(*self.copies(lambda text: text))
        self.assertGreater(len(changes), 200)  # medians, and p99s
        self.assertEqual([c for c in changes if c.verdict(0.0)], [])

    def test_a_change_is_found_and_told(self):
        def slower(text):
            return text.replace(
                "| 64 | unchanged | tight | 64 | 1.39 (2.54) |", "| 64 | unchanged | tight | 64 | 1.74 (2.54) |"
            )

        changes = compare.compare(*self.copies(slower))
        first = changes[0]
        self.assertEqual(
            (first.case, first.metric, first.before, first.after),
            ("requests 64, unchanged, tight", "prepare + launch", 1.39, 1.74),
        )
        self.assertAlmostEqual(first.percent, 25.18, places=2)
        self.assertEqual([c.verdict(5.0) for c in changes if c.verdict(5.0)], ["worse"])
        self.assertEqual(first.verdict(30.0), "")
        self.assertEqual(compare.regressions(changes, 20.0), [first])
        self.assertEqual(compare.regressions(changes, 30.0), [])
        self.assertIn("+25.2%", compare.table(changes, 5.0))

    def test_tails_count_when_they_are_asked_for(self):
        changes = compare.compare(*self.copies(lambda text: text.replace("1.39 (2.54)", "1.39 (9.99)")))
        self.assertEqual(compare.regressions(changes, 5.0), [])
        self.assertEqual([c.metric for c in compare.regressions(changes, 5.0, tails=True)], ["prepare + launch, p99"])

    def test_less_time_is_better_and_less_of_a_rate_is_worse(self):
        changes = compare.compare(*self.copies(lambda text: text.replace("1.39 (2.54)", "0.64 (2.54)")))
        self.assertEqual(changes[0].verdict(5.0), "better")
        old = parse.Result(
            "a", "", "llama", "llama", {}, [parse.Record("llama", {}, "tokens per second", "1/s", 100.0, better="higher")]
        )
        new = parse.Result(
            "b", "", "llama", "llama", {}, [parse.Record("llama", {}, "tokens per second", "1/s", 50.0, better="higher")]
        )
        self.assertEqual(compare.compare([old], [new])[0].verdict(5.0), "worse")

    def test_a_failure_where_there_was_none_is_a_regression(self):
        self.write("old/tests.txt", "5 passed, 0 failed, 0 skipped\n")
        self.write("new/tests.txt", "5 passed, 1 failed, 0 skipped\n")
        changes = compare.compare(parse.load([self.folder / "old"])[0], parse.load([self.folder / "new"])[0])
        self.assertEqual([c.metric for c in compare.regressions(changes, 5.0)], ["failed"])

    @staticmethod
    def result(path, *numbers):
        """(metric, unit, value, better)"""
        records = [parse.Record("p", {}, metric, unit, value, better=better) for metric, unit, value, better in numbers]
        return parse.Result(path, "", "p", "p", {}, records)

    def test_verdicts(self):
        for before, after, better, percent, verdict in (
            (-0.45, -0.44, "lower", 2.2, ""),
            (-0.45, -0.20, "lower", 55.6, "worse"),
            (-0.45, -0.70, "lower", -55.6, "better"),
            (100.0, 150.0, "lower", 50.0, ""),
            (100.0, 151.0, "", 51.0, "moved"),
            (100.0, 49.0, "higher", -51.0, "worse"),
            (0.0, 0.0, "lower", 0.0, ""),
            (0.0, 0.1, "lower", None, "worse"),
        ):
            changes = compare.compare(
                [self.result("a", ("m", "us", before, better))], [self.result("b", ("m", "us", after, better))]
            )
            self.assertEqual([c.percent if c.percent is None else round(c.percent, 1) for c in changes], [percent])
            self.assertEqual(changes[0].verdict(50.0), verdict, (before, after))

    def test_only_counts_regress_from_nothing(self):
        before = self.result("a", ("time", "us", 0.0, "lower"), ("failed", "count", 0.0, "lower"), ("nodes", "count", 1.0, ""))
        after = self.result("b", ("time", "us", 0.1, "lower"), ("failed", "count", 1.0, "lower"), ("nodes", "count", 9.0, ""))
        changes = compare.compare([before], [after])
        self.assertEqual([c.metric for c in compare.regressions(changes, 5.0)], ["failed"])

    def test_the_largest_change_comes_first_and_new_failures_before_it(self):
        names = ("a", "b", "c", "d", "e")
        units = ("us", "us", "us", "us", "count")
        before = self.result("a", *((n, u, v, "lower") for n, u, v in zip(names, units, (10.0, 10.0, 0.0, 10.0, 0.0))))
        after = self.result("b", *((n, u, v, "lower") for n, u, v in zip(names, units, (11.0, 5.0, 1.0, 12.0, 1.0))))
        self.assertEqual([c.metric for c in compare.compare([before], [after])], ["e", "b", "d", "a", "c"])

    def test_a_file_that_is_in_both_sets_and_what_comes_second(self):
        one, other = self.result("a", ("m", "us", 1.0, "lower")), self.result("b", ("m", "us", 2.0, "lower"))
        third = self.result("c", ("m", "us", 4.0, "lower"))
        self.assertEqual(compare.compare([one], [one]), [])
        self.assertEqual([(c.before, c.after) for c in compare.compare([one, other], [third])], [(1.0, 4.0)])

    def test_the_exit_status_tells_of_it(self):
        self.copies(lambda text: text.replace("1.39 (2.54)", "1.74 (2.54)"))
        common = [self.folder / "new", "--against", self.folder / "old", "--no-plots", "--out", self.folder / "r.html"]
        self.assertEqual(report(*common).returncode, 0)
        self.assertEqual(report(*common, "--fail-beyond", "30").returncode, 0)
        bad = report(*common, "--fail-beyond", "20")
        self.assertEqual(bad.returncode, 1)
        self.assertIn("1 numbers are worse by more than 20%", bad.stderr)
        self.assertIn("+25.2%", bad.stdout)
        self.assertIn("+25.2%", (self.folder / "r.html").read_text(encoding="utf-8"))


class Page(Folder):
    def test_it_is_made_from_the_kept_results_alone(self):
        made = report("--no-plots", "--out", self.folder / "r.html", "--json", self.folder / "r.json")
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        text = (self.folder / "r.html").read_text(encoding="utf-8")
        for title in (
            "Host time of a step",
            "Prologue, planner, fetch and epilogue",
            "Attention next to its floor",
            "Planners",
            "Padding",
            "Targets",
        ):
            self.assertIn(title, text)
        self.assertNotRegex(text, r"<script|<link|<img|src=")
        numbers = json.loads((self.folder / "r.json").read_text(encoding="utf-8"))
        self.assertGreater(sum(len(r["records"]) for r in numbers["results"]), 2000)
        self.assertEqual(numbers["unread"], [])

    def test_its_front_needs_nothing_for_a_page_without_plots(self):
        made = run(PROFILES / "report" / "run", RESULTS / "h200_2026-11-23", "--no-plots", "--out", self.folder / "r.html")
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        self.assertTrue((self.folder / "r.html").is_file())

    def test_its_front_refuses_a_python_that_is_too_old_for_plots(self):
        front = self.write("report/run", (PROFILES / "report" / "run").read_text(encoding="utf-8"))
        self.write("report/requirements.txt", "matplotlib\n")
        old = self.write("old python", "#!/bin/sh\nexit 1\n")
        old.chmod(0o755)
        refused = run("bash", front, env=dict(os.environ, PYTHON=str(old)))
        self.assertEqual(refused.returncode, 2)
        self.assertIn("old python is older than 3.11", refused.stderr)
        self.assertFalse((self.folder / "report" / ".venv").exists())

    def test_the_first_folder_counts_and_others_fill_in(self):
        results, unread = parse.load([RESULTS / "h200_2026-11-23", RESULTS / "h200_2026-11-22", RESULTS / "h200_2026-11-20"])
        self.assertEqual(unread, [])
        folders = {r.kind: r.folder for r in results}
        self.assertEqual((folders["step_cost"], folders["attention_cost"]), ("h200_2026-11-23", "h200_2026-11-23"))
        self.assertEqual(len(folders), len(results))

    STEPS = "# program: profiles/step_cost\n# device: D\n\n| requests | ratio | target |\n|---|---|---|\n"

    def test_targets_that_are_met_are_counted_and_those_missed_told(self):
        self.write("x/step_cost.txt", self.STEPS + "| 1 | 1 | 2 |\n| 8 | 2 | 2 |\n| 64 | 3 | 2 |\n| 256 | 3 | |\n")
        chosen = choose.Chosen(parse.load([self.folder / "x"])[0])
        self.assertEqual([(r.case["requests"], t) for r, t in choose.targets(chosen)], [("64", 1.5), ("8", 1.0), ("1", 0.5)])
        report(self.folder / "x", "--no-plots", "--out", self.folder / "r.html")
        text = (self.folder / "r.html").read_text(encoding="utf-8")
        self.assertIn("<b>2 of 3</b>targets are met", text)
        self.assertIn("2 of 3 numbers that have a target meet it.", text)
        self.assertEqual(re.findall(r"[\d.]+ ×(?=<)", text[text.index("<h2>Targets") :])[0], "1.50 ×")

    def test_padding_is_told_by_what_is_wasted(self):
        text = "".join(
            f'cgr_key_{name}_total{{key="{key}"}} {number}\n'
            for key, *numbers in (("a", 9, 90, 100), ("b", 1, 10, 40), ("c", 12, 100, 110), ("d", 5, 0, 0))
            for name, number in zip(("steps", "real_tokens", "padded_tokens"), numbers)
        )
        rows, left_out = choose.padding(choose.Chosen([parse.parse_file(self.write("metrics.prom", text))]), most=2)
        self.assertEqual((rows, left_out), ([("b", 1, 10, 40), ("c", 12, 100, 110)], 1))

    def test_of_a_file_the_graph_that_took_most_is_shown(self):
        phases = {"fetch": {"median_us": 1.0, "p99_us": 1.0, "share": 1.0}}
        more = {"layer": {"median_us": 3.0, "p99_us": 3.0, "share": 0.75}, "fetch": phases["fetch"]}
        graphs = [{"title": "a", "phases": phases}, {"title": "b", "phases": more}, {"title": "c", "phases": phases}]
        result = parse.parse_file(self.write("p.json", json.dumps({"graphs": graphs})), "phases")
        (panel,) = choose.phases(choose.Chosen([result]))
        self.assertEqual((panel.source, [n for n, *_ in panel.rows]), ("b", ["layer", "fetch"]))

    def test_a_file_that_is_named_counts_before_those_of_the_folders(self):
        names = ("steps", "real_tokens", "padded_tokens")
        key = "".join(f'cgr_key_{name}_total{{key="%s"}} 1\n' for name in names)
        self.write("x/metrics.prom", key.replace("%s", "kept"))
        named = self.write("other.txt", key.replace("%s", "named"))
        files = ("--json", self.folder / "r.json", "--out", self.folder / "r.html")
        made = report(self.folder / "x", "--metrics", named, "--no-plots", *files)
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        results = json.loads((self.folder / "r.json").read_text(encoding="utf-8"))["results"]
        self.assertEqual([r["path"] for r in results], [str(named)])

    def test_the_host_comes_last_and_what_is_of_no_device_after_it(self):
        names = [pathlib.Path(f).name for f in page_maker.default_folders()]
        self.assertEqual(names[-2:], ["host_2026-11-23", "results"])
        self.assertEqual(names[:-2], sorted(names[:-2], key=lambda name: name.split("_")[::-1], reverse=True))
        kinds = {r.kind for r in parse.load(page_maker.default_folders())[0]}
        self.assertLessEqual({"coverage", "simulation", "standing_edits", "step_cost", "metrics"}, kinds)

    def test_every_change_is_on_the_page(self):
        head, row = "# program: profiles/new_cost\n\n## A\n| what | us |\n|---|---:|\n", "| row%03d x | %d |\n"
        self.write("old/new_cost.txt", head + "".join(row % (i, 100) for i in range(43)))
        self.write("old/core.dump", "")
        self.write("new/new_cost.txt", head + "".join(row % (i, 200 + i) for i in range(43)))
        made = report(self.folder / "new", "--against", self.folder / "old", "--no-plots", "--out", self.folder / "r.html")
        self.assertIn("core.dump is not read: ends in .dump", made.stderr)
        text = (self.folder / "r.html").read_text(encoding="utf-8")
        changes = text[text.index("<h2>What has changed") : text.index("<h2>Host time")]
        self.assertEqual(sorted(re.findall(r"row\d+", changes)), [f"row{i:03}" for i in range(43)])
        self.assertIn("3 more beyond it", changes)

    def test_tails_fail_where_they_are_asked_for(self):
        text = "# program: profiles/new_cost\n| what | us |\n|---|---:|\n| x y | 1.5 (%s) |\n"
        self.write("old/new_cost.txt", text % "2.0")
        self.write("new/new_cost.txt", text % "9.0")
        common = [self.folder / "new", "--against", self.folder / "old", "--no-plots", "--out", self.folder / "r.html"]
        self.assertEqual(report(*common, "--fail-beyond", "5").returncode, 0)
        self.assertEqual(report(*common, "--fail-beyond", "5", "--tails").returncode, 1)

    def test_a_broken_file_is_named_in_the_page_and_on_stderr(self):
        self.write("x/step_cost.txt", "# program: profiles/step_cost\nkilled <&\n")
        self.write("x/core.dump", "")
        self.write("x/fork_cost.txt", (RESULTS / "h200_2026-11-22" / "fork_cost.txt").read_text(encoding="utf-8"))
        made = report(self.folder / "x", "--no-plots", "--out", self.folder / "r.html")
        self.assertEqual(made.returncode, 0)
        text = (self.folder / "r.html").read_text(encoding="utf-8")
        for name, why in (("step_cost.txt", "no table"), ("core.dump", "ends in .dump")):
            self.assertRegex(made.stderr, f"{name} is not read: {why}")
            self.assertIn(name, text)
        self.assertIn("missing from this page", text)

    def test_sets_that_have_nothing_in_common(self):
        for name in ("fork_cost", "kernel_cost"):
            found = max((RESULTS).glob(f"h200_*/{name}.txt"))
            self.write(f"{name}/{name}.txt", found.read_text(encoding="utf-8"))
        common = [self.folder / "fork_cost", "--against", self.folder / "kernel_cost"]
        common += ["--no-plots", "--out", self.folder / "r.html"]
        made = report(*common)
        self.assertEqual((made.returncode, made.stderr), (0, "the two sets have no number in common\n"))
        self.assertEqual(report(*common, "--fail-beyond", "5").returncode, 1)

    def test_a_page_that_cannot_be_written(self):
        for options in (["--out", self.folder], ["--out", self.folder / "r.html", "--json", self.folder / "no" / "x.json"]):
            made = report("--no-plots", *options)
            self.assertEqual((made.returncode, made.stderr.count("\n")), (2, 1), made.stderr)
            self.assertIn("cannot be written", made.stderr)

    def test_bad_arguments_are_refused(self):
        self.assertIn("is not a folder", report(self.folder / "no").stderr)
        self.assertIn("is not a file", report(RESULTS / "h200_2026-11-23", "--phases", self.folder / "no").stderr)
        for bad in ("nan", "inf", "-1", "x"):
            self.assertEqual(report("--against", self.folder, "--fail-beyond", bad).returncode, 2, bad)
            self.assertEqual(report("--tolerance", bad).returncode, 2, bad)
        self.assertIn("--fail-beyond needs --against", report("--fail-beyond", "5").stderr)
        (self.folder / "empty").mkdir()
        empty = report(self.folder / "empty", "--no-plots", "--out", self.folder / "r.html")
        self.assertEqual(empty.returncode, 2)
        self.assertIn("no results in", empty.stderr)

    def test_times_of_another_device_are_left_out_and_its_counts_are_not(self):
        results, _ = parse.load([RESULTS / "h200_2026-11-23"])
        results = [r for r in results if r.kind != "metrics"] + [parse.parse_file(RESULTS / "host_2026-11-23" / "metrics.prom")]
        host = self.write(
            "host/kernel_cost.txt",
            "# program: profiles/kernel_cost\n# device: host\n\n| step | planner |\n|---|---:|\n| 1 decode, unchanged | 777 |\n",
        )
        chosen = choose.Chosen([r for r in results if r.kind != "kernel_cost"] + [parse.parse_file(host)])
        self.assertEqual(chosen.device, "NVIDIA H200")
        self.assertEqual(chosen.find("kernel_cost"), [])
        rows, left_out = choose.padding(chosen)
        self.assertEqual(rows[0], ("full 24r 24t q1 v0", 273, 6406, 6552))
        self.assertEqual((len(rows), left_out), (13, 0))

    def test_what_the_plots_get_is_what_the_files_say(self):
        chosen = choose.Chosen(parse.load([RESULTS / "h200_2026-11-23", RESULTS / "h200_2026-11-22"])[0])
        panels = dict(choose.host_time(chosen))
        sizes, times, bare, ratios = panels["one leaves, one comes"]["whole"]
        self.assertEqual(
            (sizes, times[-1].value, bare[-1].value, ratios[-1].value), ([1, 8, 64, 256, 1024], 17.22, 1.28, 13.71)
        )
        self.assertEqual(len(choose.loops(chosen)), 12)
        rows, names = choose.attention(chosen, choose.read_peers(PROFILES / "peers.json")["attention"])
        by_case = {row[0]: row for row in rows}
        self.assertEqual((len(rows), len(names)), (18, 3))
        self.assertEqual(by_case["prefill 4096 (causal)"][3]["FlashAttention-3"], 279)
        self.assertEqual(by_case["prefill 4096 (causal)"][2], {"in steps": 543.9, "alone": 532.2})
        self.assertAlmostEqual(by_case["decode bs1 len1k"][1], 8.5 / 9.43)
        _, kernels, alone = choose.own_nodes(chosen)
        self.assertEqual(kernels["planner"], ([1, 8, 64, 256, 1024], [0.90, 0.68, 0.87, 0.29, 1.23]))
        self.assertEqual(alone["prologue, fetched"][1][-1], 3.53)
        self.assertEqual(
            {name: values[0] for name, _, values, _ in choose.planners(chosen)}["for FlashInfer, tensor cores"], 2.18
        )

    def test_peers_have_a_time_for_every_peer(self):
        attention = choose.read_peers(PROFILES / "peers.json")["attention"]
        cases = {r.case["case"] for r in parse.parse_file(RESULTS / "h200_2026-11-22" / "attention_cost.txt").records}
        for case, times in attention["cases"].items():
            self.assertEqual(len(times), len(attention["peers"]), case)
            self.assertIn(case, cases)

    def test_the_bench_has_the_best_of_the_peers(self):
        text = (PROFILES / "support" / "attention_shapes.c").read_text(encoding="utf-8")
        shapes = re.findall(r'\{ \.name = "([^"]+)",([^{}]*)\}', text)
        best = {name: float(us[1]) for name, rest in shapes if (us := re.search(r"\.peer_us = ([\d.]+)", rest))}
        attention = choose.read_peers(PROFILES / "peers.json")["attention"]
        self.assertEqual(best, {case: min(times) for case, times in attention["cases"].items()})


@unittest.skipUnless(HAS_PLOTS, "python3 has no matplotlib")
class Plots(Folder):
    def test_every_plot_is_drawn_with_colours_and_ids_of_the_page(self):
        phases = self.write(
            "phases.json", json.dumps({"source": "s", "phases": [{"phase": "attention", "us_median": 3.5, "us_p99": 4}]})
        )
        made = report("--out", self.folder / "r.html", "--png", self.folder / "png", "--phases", phases)
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        text = (self.folder / "r.html").read_text(encoding="utf-8")
        self.assertEqual(text.count("<svg"), 7)
        ids = re.findall(r'\bid="([^"]+)"', text)
        self.assertEqual(len(ids), len(set(ids)))
        self.assertTrue(set(re.findall(r"url\(#([^)]+)\)", text)) <= set(ids))
        self.assertNotRegex(text, r"#0f[0-9a-f]{2}e7")
        self.assertIn("var(--blue", text)
        self.assertEqual(len(list((self.folder / "png").glob("*.png"))), 14)


if __name__ == "__main__":
    unittest.main()
