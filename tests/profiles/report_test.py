"""How two sets of results compare, and what the report's options refuse. What it reads: parser_test.py.

python3 -B tests/profiles/report_test.py [-v] [Comparison]      from the project's root; Python 3.10 and nothing else
"""

import unittest

from common import PROFILES, RESULTS, Folder, report, run

import compare
import parse
import tables

STEP_COST = (RESULTS / "h200_2026-11-24" / "step_cost.txt").read_text(encoding="utf-8")
ROW = "| 64 | unchanged | tight | 64 | 2.38 (3.36) |"


class Comparison(Folder):
    def copies(self, row=ROW):
        """Two folders with the same result, in the second one with another row."""
        self.assertIn(ROW, STEP_COST)
        self.write("old/step_cost.txt", STEP_COST)
        self.write("new/step_cost.txt", STEP_COST.replace(ROW, row))
        return parse.load([self.folder / "old"])[0], parse.load([self.folder / "new"])[0]

    def test_what_is_the_same_has_not_changed(self):
        changes = compare.compare(*self.copies())
        self.assertGreater(len(changes), 200)  # medians, and p99s
        self.assertEqual([c for c in changes if c.verdict(0.0)], [])

    def test_a_change_is_found_and_told(self):
        changes = compare.compare(*self.copies(ROW.replace("2.38", "2.98")))
        first = changes[0]
        self.assertEqual(
            (first.case, first.metric, first.before, first.after),
            ("requests 64, unchanged, tight", "prepare + launch", 2.38, 2.98),
        )
        self.assertAlmostEqual(first.percent, 25.21, places=2)
        self.assertEqual([c.verdict(5.0) for c in changes if c.verdict(5.0)], ["worse"])
        self.assertEqual(first.verdict(30.0), "")
        self.assertEqual(compare.regressions(changes, 20.0), [first])
        self.assertEqual(compare.regressions(changes, 30.0), [])
        self.assertIn("+25.2%", compare.table(changes, 5.0))

    def test_tails_count_when_they_are_asked_for(self):
        changes = compare.compare(*self.copies(ROW.replace("3.36", "9.99")))
        self.assertEqual(compare.regressions(changes, 5.0), [])
        self.assertEqual([c.metric for c in compare.regressions(changes, 5.0, tails=True)], ["prepare + launch, p99"])

    @staticmethod
    def result(path, *numbers):
        """(metric, unit, value, better)"""
        records = [tables.Record("p", {}, metric, unit, value, better=better) for metric, unit, value, better in numbers]
        return parse.Result(path, "p", "p", {}, records, [])

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

    def test_the_first_folder_counts_and_others_fill_in(self):
        results, unread = parse.load([RESULTS / "h200_2026-11-24", RESULTS / "h200_2026-11-26", RESULTS / "h100_2026-11-25"])
        self.assertEqual(unread, [])
        devices = {r.kind: r.head["date"] for r in results}
        self.assertEqual((devices["step_cost"], devices["attention_cost"]), ("2026-11-24", "2026-11-26"))
        self.assertEqual(len(devices), len(results))

    def test_the_exit_status_tells_of_a_regression(self):
        self.copies(ROW.replace("2.38", "2.98"))
        self.write("old/core.dump", "")
        common = [self.folder / "new", "--against", self.folder / "old"]
        made = run(PROFILES / "report" / "run", *common)
        self.assertEqual(made.returncode, 0)
        self.assertIn("core.dump is not read: ends in .dump", made.stderr)
        self.assertIn("+25.2%", made.stdout)
        self.assertNotIn("+25.2%", report(*common, "--tolerance", "30").stdout)
        self.assertEqual(report(*common, "--fail-beyond", "30").returncode, 0)
        bad = report(*common, "--fail-beyond", "20")
        self.assertEqual(bad.returncode, 1)
        self.assertIn("1 numbers are worse by more than 20%", bad.stderr)
        self.copies(ROW.replace("3.36", "9.99"))
        self.assertEqual([report(*common, "--fail-beyond", "20", *tails).returncode for tails in ([], ["--tails"])], [0, 1])

    def test_sets_that_have_nothing_in_common(self):
        for name in ("fork_cost", "step_cost"):
            found = max(RESULTS.glob(f"h200_*/{name}.txt"))
            self.write(f"{name}/{name}.txt", found.read_text(encoding="utf-8"))
        common = [self.folder / "fork_cost", "--against", self.folder / "step_cost"]
        made = report(*common)
        self.assertEqual((made.returncode, made.stderr), (0, "the two sets have no number in common\n"))
        self.assertEqual(report(*common, "--fail-beyond", "5").returncode, 1)

    def test_bad_arguments_are_refused(self):
        self.copies()
        folders = [self.folder / "new", "--against", self.folder / "old"]
        for bad in ("nan", "inf", "-1", "x"):
            self.assertIn("invalid" if bad == "x" else "is no percentage", report(*folders, f"--tolerance={bad}").stderr, bad)
            self.assertEqual(report(*folders, f"--fail-beyond={bad}").returncode, 2, bad)
        for arguments, why in (
            ([self.folder / "no", "--against", self.folder / "old"], "is not a folder"),
            ([self.folder / "new"], "expected --results, --readme, or folders and --against"),
            (["--against", self.folder / "old"], "expected --results, --readme, or folders and --against"),
            ([], "expected --results, --readme, or folders and --against"),
            (["--results", self.folder / "no" / "x.md"], "No such file"),
            (["--readme", self.write("x.md", "<!-- results: gain -->\n")], "expected one block from <!-- results: gain --> to"),
        ):
            refused = report(*arguments)
            self.assertEqual(refused.returncode, 2, arguments)
            self.assertIn(why, refused.stderr)


if __name__ == "__main__":
    unittest.main()
