"""The report over the kept results: how it compares, what its page and plots show. What it reads: parser_test.py.

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
import tables

HAS_PLOTS = importlib.util.find_spec("matplotlib") is not None


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
        old, new = self.result("a", ("m", "1/s", 100.0, "higher")), self.result("b", ("m", "1/s", 50.0, "higher"))
        self.assertEqual(compare.compare([old], [new])[0].verdict(5.0), "worse")

    def test_a_failure_where_there_was_none_is_a_regression(self):
        self.write("old/tests.txt", "5 passed, 0 failed, 0 skipped\n")
        self.write("new/tests.txt", "5 passed, 1 failed, 0 skipped\n")
        changes = compare.compare(parse.load([self.folder / "old"])[0], parse.load([self.folder / "new"])[0])
        self.assertEqual([c.metric for c in compare.regressions(changes, 5.0)], ["failed"])

    @staticmethod
    def result(path, *numbers):
        """(metric, unit, value, better)"""
        records = [tables.Record("p", {}, metric, unit, value, better=better) for metric, unit, value, better in numbers]
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
    def page(self, *arguments):
        """A report without plots: how the program ended, and the page's text."""
        made = report(*arguments, "--no-plots", "--out", self.folder / "r.html")
        return made, (self.folder / "r.html").read_text(encoding="utf-8")

    def test_it_is_made_from_the_kept_results_alone(self):
        made, text = self.page("--json", self.folder / "r.json")
        self.assertEqual((made.returncode, made.stderr), (0, ""))
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
        _, text = self.page(self.folder / "x")
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
        made, _ = self.page(self.folder / "x", "--metrics", named, "--json", self.folder / "r.json")
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
        made, text = self.page(self.folder / "new", "--against", self.folder / "old")
        self.assertIn("core.dump is not read: ends in .dump", made.stderr)
        changes = text[text.index("<h2>What has changed") : text.index("<h2>Host time")]
        self.assertEqual(sorted(re.findall(r"row\d+", changes)), [f"row{i:03}" for i in range(43)])
        self.assertIn("3 more beyond it", changes)

    def test_tails_fail_where_they_are_asked_for(self):
        text = "# program: profiles/new_cost\n| what | us |\n|---|---:|\n| x y | 1.5 (%s) |\n"
        self.write("old/new_cost.txt", text % "2.0")
        self.write("new/new_cost.txt", text % "9.0")
        common = [self.folder / "new", "--against", self.folder / "old", "--fail-beyond", "5"]
        self.assertEqual(self.page(*common)[0].returncode, 0)
        self.assertEqual(self.page(*common, "--tails")[0].returncode, 1)

    def test_a_broken_file_is_named_in_the_page_and_on_stderr(self):
        self.write("x/step_cost.txt", "# program: profiles/step_cost\nkilled <&\n")
        self.write("x/core.dump", "")
        self.write("x/fork_cost.txt", (RESULTS / "h200_2026-11-22" / "fork_cost.txt").read_text(encoding="utf-8"))
        made, text = self.page(self.folder / "x")
        self.assertEqual(made.returncode, 0)
        for name, why in (("step_cost.txt", "no table"), ("core.dump", "ends in .dump")):
            self.assertRegex(made.stderr, f"{name} is not read: {why}")
            self.assertIn(name, text)
        self.assertIn("missing from this page", text)

    def test_sets_that_have_nothing_in_common(self):
        for name in ("fork_cost", "kernel_cost"):
            found = max((RESULTS).glob(f"h200_*/{name}.txt"))
            self.write(f"{name}/{name}.txt", found.read_text(encoding="utf-8"))
        common = [self.folder / "fork_cost", "--against", self.folder / "kernel_cost"]
        made, _ = self.page(*common)
        self.assertEqual((made.returncode, made.stderr), (0, "the two sets have no number in common\n"))
        self.assertEqual(self.page(*common, "--fail-beyond", "5")[0].returncode, 1)

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
