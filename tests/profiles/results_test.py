"""profiles/RESULTS.md and the numbers of README.md are made from the kept results.

python3 -B tests/profiles/results_test.py [-v] [Tables|Numbers]     from the project's root; Python 3.10 and nothing else
"""

import json
import pathlib
import re
import unittest

from common import PROFILES, RESULTS, Folder, report

import parse
import readme
import results
import sections

README = pathlib.Path("README.md").read_text(encoding="utf-8")
MADE = (PROFILES / "RESULTS.md").read_text(encoding="utf-8")

STEP_COST = (
    "# program: profiles/step_cost\n# device: {}\n# library: cgr {}, with CUDA\n# date: 2026-11-{}\n# commit: {}\n\n"
    "| requests | batch | loop | bytes staged | prepare + launch | bare launch | ratio | target |\n|---|---|---|---|---|---|---|---|\n"
)
BENCH = (
    "# {}\n# device: NVIDIA H200\n# commit: abc\n| model | params | dtype | mode | test | requests | ms per step | p99 | tokens/s |\n"
    "|---|---|---|---|---|---|---|---|---|\n"
)
THIS = "{}.{}.0".format(*results.version())


class Tables(Folder):
    def test_the_page_is_made_from_the_kept_results(self):
        made = report("--results", self.folder / "RESULTS.md")
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        self.assertEqual((self.folder / "RESULTS.md").read_text(encoding="utf-8"), MADE, "profiles/report/run --results makes it anew")

    def test_every_section_has_a_result(self):
        for section in sections.SECTIONS:
            self.assertEqual(MADE.count(f"\n## {section.title}\n"), 1, section.title)

    def section(self, title):
        section = next(s for s in sections.SECTIONS if s.title.startswith(title))
        return [line for line in results.make_section(section, parse.load_all(self.folder)).splitlines() if line.startswith("|")][2:]

    def step_cost(self, folder, device, version, day, commit, *rows):
        lines = "".join(f"| {requests} | {batch} | tight | 64 | {us} (3.5) | 1.20 (2.1) | 1.15 (1.2) | |\n" for requests, batch, us in rows)
        self.write(f"{folder}/step_cost.txt", STEP_COST.format(device, version, day, commit) + lines)

    def test_of_each_card_and_case_the_newest_counts_and_older_ones_say_it(self):
        self.step_cost("b", "NVIDIA H200 (132)", "0.9.0", "20", "bbb", ("1", "unchanged", "1.1"), ("8", "unchanged", "1.2"))
        self.step_cost("a", "NVIDIA H200 (132)", THIS, "21", "aaa", ("8", "unchanged", "1.3"))
        self.step_cost("c", "NVIDIA H100 80GB HBM3", THIS, "20", "ccc", ("8", "unchanged", "1.4"))
        self.step_cost("d", "", THIS, "22", "ddd", ("8", "unchanged", "1.5"))
        rest = "1.20 (2.1) | 1.15 (1.2) | 1.10 (1.25)"
        self.assertEqual(
            self.section("Host time of an unchanged"),
            [
                f"| 8 | unchanged | 1.4 (3.5) | {rest} | H100, `ccc` |",
                f"| 8 | unchanged | 1.3 (3.5) | {rest} | H200, `aaa` |",
                f"| 1 | unchanged | 1.1 (3.5) | {rest} | H200, 0.9, `bbb` |",
            ],
        )

    def test_targets_are_those_of_the_project(self):
        batches = ("one leaves, one comes", "standing, one leaves, one comes", "1/16 append a page")
        self.step_cost("a", "NVIDIA H200", THIS, "21", "aaa", *((n, b, "1.1") for b in batches for n in ("1", "256", "1024")))
        self.assertEqual([row.split("|")[-3].strip() for row in self.section("One request")], ["", "2.5", "3.5", "2.5", "2.5", "2.5"])
        self.assertEqual([row.split("|")[-3].strip() for row in self.section("A page more")], ["1.25", "1.25", "1.40"])
        self.assertEqual([sections.planner("", {"batch": b}) for b in ("1 decode", "1024 decodes", "4096 decodes", "no requests",
                         "1 prefill of 8192 tokens")], ["2.5", "2.5", "", "", "6"])  # fmt: skip

    def bench(self):
        row = "| 8b (random) | 8.03 B | bf16 | {} | tg128 @ 128 | 1 | {} | {} | {} |\n"
        self.write("a/llama_bench.txt", BENCH.format(f"llama --bench, cgr {THIS}") + row.format("full", "6.50", "6.61", "153.8")
                   + row.format("none", "7.50", "7.61", "133.3"))  # fmt: skip
        self.write("a/llama_cpp.txt", BENCH.format("llama.cpp b1 (x)") + row.format("llama.cpp", "7.00", "7.10", "142.8")
                   + row.format("llama.cpp, logits", "7.20", "7.30", "138.9").replace("128 |", "4096 |"))  # fmt: skip
        self.write("c_2026-11-30/llama_bench_guesses.txt", BENCH.format(f"llama --bench, cgr {THIS}") + row.format("full", "2.00", "2.10", "888.8"))
        self.write("b/llama_cpp.txt", BENCH.format("llama.cpp b2 (x)") + row.format("llama.cpp", "1.00", "1.10", "999.9"))

    def test_a_bench_stands_next_to_others_of_the_same_folder_alone(self):
        self.bench()
        text = results.make_bench(parse.load_all(self.folder))
        self.assertIn(f"cgr {THIS}, llama.cpp b1 (x).", text)
        self.assertIn("| as one graph: ms per step | as one graph: tokens/s | eagerly: ms per step |", text)
        self.assertIn("| 1 | 6.50 (6.61) | 153.8 | 7.50 (7.61) | 133.3 | 7.00 (7.10) | 142.8 | | | 3.59 | H200, `abc` |", text)
        self.assertNotIn("999.9", text)
        self.assertNotIn("888.8", text)
        self.assertEqual(results.make_bench([]), "")

    def test_flashinfer_stands_next_to_attention_of_the_same_folder(self):
        rows = [line for line in MADE[MADE.index("## Attention next to") :].splitlines() if line.startswith("| decode bs256 len32k")]
        self.assertEqual(rows, ["| decode bs256 len32k | 7666.4 | 7715.7 | 7709.0 | wrong | H200, 0.10, `36a31c3` |"])

    def test_the_newest_runs_of_each_machine_are_lines(self):
        head, row = "date,device,driver,commit,suite,passed,failed,skipped,note\n", "2026-11-{},NVIDIA H200,1,{},tests,{},0,1,\n"
        path = self.write("runs.csv", head + row.format(22, "c", 3) + row.format(20, "a", 1) + row.format(22, "d", 4) + row.format(21, "b", 2))
        text = results.make_runs(path)
        self.assertEqual(re.findall(r"\| (\d) \| 0 \| 1 \| `(\w)` \|", text), [("4", "d"), ("3", "c")])
        self.assertIn("has 2 runs of earlier commits", " ".join(text.split()))

    def test_readme_says_what_one_gains_and_what_this_version_takes(self):
        self.bench()
        self.step_cost("a", "NVIDIA H200", THIS, "21", "aaa", ("64", "standing, unchanged", "1.37"))
        self.step_cost("b", "NVIDIA H100", "0.9.0", "21", "bbb", ("1024", "standing, unchanged", "1.37"))
        times = "host time per step: replayed {} us, eager 219 us (146 x), bare launch 1.2 us\n"
        head = f"# device: NVIDIA H200\n# library: cgr {THIS}\n# commit: abc\n"
        self.write("a/llama_modes.txt", head + f"== --mode full\n{times.format(1.5)}== --mode piecewise\n{times.format(40)}")
        loaded = parse.load_all(self.folder)
        gain, peers, table = readme.make_gain(loaded), readme.make_peers(loaded), readme.make_table(loaded)
        for what, us in (("eager", "219"), ("in pieces", "40"), ("as one graph", "1.5"), ("empty kernels", "1.2")):
            self.assertRegex(gain, rf"\| [^|]*{what}[^|]* \| {us} us \|\n")
        self.assertIn(", NVIDIA H200 |", gain)
        self.assertIn("| 8B | decode, requests: 1, each with 128 tokens in its cache | 154 | 133 | 143 |", peers)
        self.assertIn("| host time of a decode step, 64 requests | 1.37 us | 3.5 us | | all work of the host |", table)
        self.assertIn("| the same over a bare graph launch | 1.15 x | 1.2 x | 1.10 x | 1 would be the launch alone |", table)
        self.assertEqual(table.count("\n|"), 4)  # the one of another version is left out
        self.assertIn(f"Version {THIS} on one NVIDIA H200 (`aaa`).", table)
        self.assertEqual({readme.make_gain([]), readme.make_peers([])}, {"Nothing has been measured yet.\n"})
        self.assertEqual(readme.make_table([]), "Nothing of this version has been measured yet.\n")

    def test_rows_of_the_table_are_rows_of_sections(self):
        self.assertLessEqual(len(readme.TABLE.strip().splitlines()), 14)
        have = parse.load_all(RESULTS)
        for line in readme.TABLE.strip().splitlines():
            what, title, name, metric, _ = line.split(" | ")
            (section,) = (s for s in sections.SECTIONS if s.title.startswith(title))
            rows = {", ".join(row.case.get(label, "") for label in section.labels): row for row in results.rows_of(section, have)}
            self.assertIn(metric, rows[name].cells, what)

    def test_the_bench_of_attention_has_the_best_of_the_peers(self):
        text = (PROFILES / "support" / "attention_shapes.c").read_text(encoding="utf-8")
        shapes = re.findall(r'\{ \.name = "([^"]+)",([^{}]*)\}', text)
        best = {name: float(us[1]) for name, rest in shapes if (us := re.search(r"\.peer_us = ([\d.]+)", rest))}
        attention = json.loads((PROFILES / "peers.json").read_text(encoding="utf-8"))["attention"]
        self.assertEqual(best, {case: min(times) for case, times in attention["cases"].items()})
        self.assertEqual({len(times) for times in attention["cases"].values()}, {len(attention["peers"])})


# Pages whose numbers are those of RESULTS.md, and numbers of them that it does not have: the file that has each, and as what.
PAGES = ("README.md", "docs/faq.md", "docs/from_your_own_graphs.md", "docs/install.md", "docs/observing.md", "docs/tuning.md")
SIZES, CAPTURE = "sizes_2026-11-24.txt", "h200_2026-11-27/mixed_cost.txt"
ELSEWHERE = {number: (SIZES, number) for number in ("78 MB", "299 MB", "1.8 MB", "13 MB")}
ELSEWHERE |= {"138 MB": (CAPTURE, "138.4 MB"), "449 ms": (CAPTURE, "448.5 ms"), "409 MB": (CAPTURE, "408.9 MB"), "338 ms": (CAPTURE, "337.7 ms")}
ELSEWHERE |= {"3.27 TB/s": ("h200_2026-11-27/ncu_step.txt", "3.27"), "41.6 us": ("h200_2026-11-27/ncu_step.txt", "41.60")}
ELSEWHERE |= {"1.2 MB": (CAPTURE, "1245184"), "3.3 MB": (CAPTURE, "3289650"), "3.8 MB": (CAPTURE, "3768320")}
UNIT = r"(?:us|ns|ms|s|x|%|MB|GB|TB/s|GB/s|tokens/s|tokens per second)"
NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
MEASURED = re.compile(rf"(?<![\w.,/:-])({NUMBER}(?:(?:,| to| and| or|, | /) {NUMBER})*)(?: ({UNIT})|(%))(?![\w/])")


def measured(text):
    """["1.5 us", ...] of a page without its blocks of results and of code; of "1 to 2 us" both."""
    text = re.sub(r"<!-- results: .*?<!-- end of results -->", "", text, flags=re.S)
    text = re.sub(r"```.*?```|^ {4}[^\n]*|`[^`\n]*`", " ", text, flags=re.S | re.M)
    found = MEASURED.findall(" ".join(text.split()))
    return [f"{number} {unit or percent}" for numbers, unit, percent in found for number in re.findall(NUMBER, numbers)]


def missing(text, page):
    """What a page says that neither RESULTS.md nor another source has."""
    known = {float(number.replace(",", "")) for number in re.findall(NUMBER, page)}
    return [m for m in measured(text) if m not in ELSEWHERE and float(m.split(" ")[0].replace(",", "")) not in known]


class Numbers(Folder):
    def test_blocks_of_the_readme_are_made_from_the_kept_results(self):
        path = self.write("README.md", re.sub(r"(<!-- results: \w+ -->\n).*?(<!-- end of results -->)", r"\1old\n\2", README, flags=re.S))
        made = report("--readme", path)
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        self.assertEqual(path.read_text(encoding="utf-8"), README, "profiles/report/run --readme makes them anew")

    def test_numbers_of_the_pages_are_in_the_results(self):
        pages = {path: pathlib.Path(path).read_text(encoding="utf-8") for path in PAGES}
        self.assertEqual({path: missing(text, MADE) for path, text in pages.items()}, dict.fromkeys(PAGES, []))
        self.assertEqual([number for number in ELSEWHERE if not any(number in measured(text) for text in pages.values())], [])

    def test_numbers_with_another_source_are_there(self):
        for number, (path, said) in ELSEWHERE.items():
            text = (RESULTS / path).read_text(encoding="utf-8")
            self.assertRegex(text, rf"(?<![\d.]){re.escape(said)}(?!\d)", number)

    def test_a_number_that_was_changed_is_seen(self):
        page = "| 219.5 | 1.20 (2.40) |\n"
        self.assertEqual(missing("It took 219.5 us, 1.2 to 2.4 us and, 78 MB later, 2.4%; `9 us`\n\n    8 us\n", page), [])
        self.assertEqual(missing("It took 219.6 us, 1.3 to 2.4 us, 1.2 or 2.5 us, 256\nMB and 7%.", page),
                         ["219.6 us", "1.3 us", "2.5 us", "256 MB", "7 %"])  # fmt: skip
        self.assertEqual(measured("<!-- results: x -->\n5 us\n<!-- end of results -->\n6 ms, 1,080 x"), ["6 ms", "1,080 x"])


if __name__ == "__main__":
    unittest.main()
