"""The records of the kept results: what the tables and comparisons are made from.

python3 -B tests/profiles/parser_test.py [-v] [Parser]      from the project's root; Python 3.10 and nothing else
"""

import re
import unittest

from common import RESULTS, Folder

import parse

KEPT = sorted(RESULTS.rglob("*/*.txt"))
# Texts without tables that are kept for people.
FOR_PEOPLE = {"llama_check", "llama_tp", "nano_vllm", "ncu_step", "nsys_step", "planner_20000", "ranks_nccl", "torch_backends"}


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
    "tail_cost": ("loop", "memory", "second thread", "side"),
    "calibrate": ("KV tiles", "KV tiles per part", "kernel kind", "head dim", "fit over"),
    "mixed_attention": ("decodes", "context", "chunk", "at", "decode parts of 33"),
    "mixed_cost": ("mode, keys", "step"),
    "self_test_cost": ("seed", "layers"),
    "transform_cost": ("transform", "tokens"),
    "python_cost": ("requests", "batch", "steps"),
    "llama_bench": ("model", "params", "dtype", "mode", "test", "requests", "p99"),
    "llama_bench_guesses": ("model", "params", "dtype", "mode", "test", "requests", "p99"),
}


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
    def read(self, name, text):
        """[(case, metric, unit, value, better)] of a text."""
        records = parse.parse_file(self.write(name, text)).records
        return [(r.case, r.metric, r.unit, r.value, r.better) for r in records]

    def test_every_number_of_a_kept_table_becomes_a_record_of_its_own(self):
        self.assertGreater(len(KEPT), 20)
        for path in (p for p in KEPT if p.stem not in FOR_PEOPLE):
            with self.subTest(path.name):
                result, text = parse.parse_file(path), path.read_text(encoding="utf-8")
                self.assertEqual(len({r.key() for r in result.records}), len(result.records))
                self.assertGreater(len(result.records), 0)
                if "\n|---" in text:
                    self.assertEqual(len(result.records), numbers_of_tables(text, LABELS.get(result.program, ())))

    def test_values_are_those_of_the_text(self):
        step = value("h200_2026-11-24/step_cost.txt", "prepare + launch", requests="64", batch="standing, unchanged")
        self.assertEqual((step.value, step.p99, step.unit, step.text), (1.37, 2.11, "us", "1.37 (2.11)"))
        ratio = value("h200_2026-11-24/step_cost.txt", "ratio", requests="1024", batch="1/16 append a page")
        self.assertEqual((ratio.value, ratio.target, ratio.unit, ratio.better), (1.60, 1.40, "x", "lower"))
        attention = value("h200_2026-11-26/attention_cost.txt", "alone", case="decode bs8 len8k")
        self.assertEqual((attention.value, attention.p99, attention.unit, attention.target), (66.7, None, "us", 66.1))
        self.assertEqual(value("h200_2026-11-26/attention_cost.txt", "in steps over the floor", case="decode bs8 len8k").value, 1.17)
        other = value("h200_2026-11-26/attention_cost.txt", "GB/s", case="hd64 bs8 len8k", table="other shapes")
        self.assertEqual((other.value, other.unit, other.better), (3500.1, "GB/s", "higher"))
        self.assertEqual(value("h200_2026-11-24/kernel_cost.txt", "staged", step="8 prefills of 8192 tokens").unit, "us")
        self.assertEqual(value("h200_2026-11-23/fa3_cost.txt", "vllm", decodes="992").value, 1.50)
        mixed = value("h200_2026-11-23/mixed_cost.txt", "prepare + launch", step="piecewise")
        self.assertEqual((mixed.value, mixed.p99, mixed.target), (248.76, 315.71, 267.11))
        self.assertEqual(value("h200_2026-11-23/mixed_cost.txt", "device bytes each", **{"mode, keys": "full, mixed"}).unit, "bytes")
        launch = value("h200_2026-11-27/llama_modes.txt", "launch", mode="piecewise", step="decode")
        self.assertEqual((launch.value, launch.p99), (58.81, 81.60))
        self.assertEqual(value("h200_2026-11-27/llama_modes.txt", "host time", mode="none", step="eager").value, 322.4)
        phase = value("h200_2026-11-23/label_coverage.txt", "us", phase="attention")
        self.assertEqual(phase.case["step"], "full, 32 layers, 16 requests, 2048 tokens in each cache, 100 replays")

    def test_what_a_file_says_of_its_origin(self):
        result = parse.parse_file(RESULTS / "h200_2026-11-26" / "attention_cost.txt")
        self.assertEqual((result.card, result.commit, result.version), ("NVIDIA H200", "bf52ea2", (0, 10)))
        self.assertEqual((result.head["date"], result.kind), ("2026-11-26", "attention_cost"))
        result = parse.parse_file(self.write("d_2026-11-20/llama_2026-11-21.txt", "# commit: a\n# commit: b\ngenerated 5 tokens 5/s\n"))
        self.assertEqual((result.commit, result.version, result.kind, result.head["date"]), ("a", (0, 0), "llama", "2026-11-20"))

    BENCH = (
        "# {}\n# device: NVIDIA H100 80GB HBM3\n# driver: 580.159.04\n# commit: abc1234\n"
        "| model | params | dtype | mode | test | requests | ms per step | p99 | tokens/s |\n|---|---:|---|---|---|---:|---:|---:|---:|\n"
        "| 8b (random) | 8.03 B | bf16 | {} | pp512 | 1 | 25.10 | 25.31 | 20398 |\n"
    )

    def test_benches_of_several_programs_may_be_in_one_file(self):
        text = self.BENCH.format("llama --bench, cgr 0.11.0", "full") + self.BENCH.format("llama.cpp b1 (llama-cpp-python 0.3.36)", "llama.cpp")
        for name in ("llama_bench.txt", "llama_cpp.txt"):
            result = parse.parse_file(self.write(name, text))
            self.assertEqual((result.program, result.version, result.commit), ("llama_bench", (0, 11), "abc1234"))
            self.assertEqual(result.engines, ["llama --bench, cgr 0.11.0", "llama.cpp b1 (llama-cpp-python 0.3.36)"])
            self.assertEqual([r.case["mode"] for r in result.records], ["full", "full", "llama.cpp", "llama.cpp"])
            time, rate = result.records[:2]
            self.assertEqual((time.metric, time.value, time.p99, time.unit, time.better), ("ms per step", 25.10, 25.31, "ms", "lower"))
            self.assertEqual((rate.metric, rate.value, rate.p99, rate.better), ("tokens/s", 20398, None, "higher"))
            self.assertEqual(len(result.records), numbers_of_tables(text.replace("\n#", "\n\n#"), LABELS["llama_bench"]))

    EXAMPLE = """\
step     graph        steps   tokens   padded prepare us      p99 launch us      p99  staged
decode   full           294     1593     1683       1.28     6.15      2.39    14.82      72

prompt         695 tokens      2,081/s   first token after 75.01 ms
generated    1,680 tokens        903/s   between tokens 6.15 ms (p99 34.12 ms)
host time per step: replayed 1.7 us, eager 219.1 us (128.9 times), bare launch 1.2 us
"""

    def test_what_the_example_prints(self):
        found = self.read("llama.txt", self.EXAMPLE)
        self.assertEqual(
            [(*case.values(), metric, unit, value, better) for case, metric, unit, value, better in found],
            [
                ("decode", "full", "prepare", "us", 1.28, "lower"),
                ("decode", "full", "launch", "us", 2.39, "lower"),
                ("prompt", "tokens/s", "1/s", 2081, "higher"),
                ("prompt", "first token", "ms", 75.01, "lower"),
                ("generated", "tokens/s", "1/s", 903, "higher"),
                ("generated", "between tokens", "ms", 6.15, "lower"),
                ("replayed", "host time", "us", 1.7, "lower"),
                ("eager", "host time", "us", 219.1, "lower"),
                ("bare launch", "host time", "us", 1.2, "lower"),
            ],
        )
        none = "host time per step: eager 220.0 us; this graph mode replays no decode step, bare launch 1.2 us\n"
        found = self.read("llama_modes.txt", f"== --mode piecewise\n{self.EXAMPLE}== --mode none\n{none}")
        self.assertEqual([case["mode"] for case, *_ in found], ["piecewise"] * 9 + ["none"] * 2)
        self.assertEqual([(case["step"], value) for case, _, _, value, _ in found[9:]], [("eager", 220.0), ("bare launch", 1.2)])

    def test_a_program_that_is_not_known_is_read_by_its_tables(self):
        text = "# program: profiles/new_cost\n\n## A\n| what | us | ms |\n|---|---:|---:|\n| x y | 1.5 (2.5) | 3 |\n"
        records = parse.parse_file(self.write("new_cost.txt", text)).records
        self.assertEqual(
            [(r.program, r.case, r.metric, r.value, r.p99, r.unit) for r in records],
            [("new_cost", {"what": "x y"}, "us", 1.5, 2.5, "us"), ("new_cost", {"what": "x y"}, "ms", 3, None, "ms")],
        )

    def test_columns_and_titles_say_their_units(self):
        for column, unit, better in (
            ("ms of a capture", "ms", "lower"),
            ("terms", "us", "lower"),
            ("bytes each", "bytes", "lower"),
            ("largest error", "%", "lower"),
            ("nodes", "count", ""),
        ):
            ((_, _, *found),) = self.read("x.txt", f"# program: profiles/x\n| what | {column} |\n|---|---|\n| a b | 4 |\n")
            self.assertEqual(found, [unit, 4.0, better], column)
        text = "# program: tracing_cost\n| ns a step | median of 5 blocks | target |\n|---|---:|---:|\n| all | 30.3 | 50 |\n"
        (record,) = parse.parse_file(self.write("tracing_cost.txt", text)).records
        self.assertEqual((record.metric, record.value, record.unit, record.target), ("median", 30.3, "ns", 50))
        text = "# program: profiles/nvtx_cost\n\n## A range; nanoseconds\n| what | median |\n|---|---:|\n| a | 0.33 |\n"
        self.assertEqual(self.read("x.txt", text)[0][1:4], ("median", "ns", 0.33))

    def test_the_target_is_of_its_column_alone(self):
        text = "# program: profiles/step_cost\n| requests | both | ratio | target |\n|---|---|---|---|\n| 8 | 3.5 (9) | 1.2x | 1.4 |\n"
        records = parse.parse_file(self.write("x.txt", text)).records
        self.assertEqual([(r.metric, r.target) for r in records], [("both", None), ("ratio", 1.4)])

    def test_tables_of_another_kind_and_of_one_title_are_told_apart(self):
        text = "# program: profiles/step_cost\n\n## Captures\n| requests | ms each |\n|---|---|\n| 8 | 1.5 |\n"
        self.assertEqual(self.read("x.txt", text), [({"table": "capture", "requests": "8"}, "ms each", "ms", 1.5, "lower")])
        text = "# program: profiles/calibrate\n" + 2 * "\n## A\n| variant | us |\n|---|---|\n| a | 4.5 (9.5) |\n"
        first, second = parse.parse_file(self.write("calibrate.txt", text)).records
        self.assertEqual((first.case["table"], second.case["table"]), ("A", "A (2)"))
        self.assertEqual((first.value, first.p99), (4.5, None))  # what a calibration has in brackets is no tail

    def test_of_one_kind_the_newest_date_counts(self):
        for day, number in (("20", 1), ("22", 3), ("21", 2)):
            self.write(f"r/llama_2026-11-{day}.txt", f"generated {number} tokens {number}/s\n")
        (result,), unread = parse.load([self.folder / "r"])
        self.assertEqual((result.records[0].value, result.head["date"], unread), (3, "2026-11-22", []))

    def test_what_cannot_be_read_says_why(self):
        head = "# program: profiles/step_cost\n"
        for name, text, why in (
            ("step_cost.txt", f"{head}Segmentation fault\n", "no table"),
            ("step_cost.txt", f"{head}\n| requests | ratio |\n|---:|---:|\n| 1 |\n", "line 5 has 1 cells"),
            ("notes.txt", "hello\n", "says what it is"),
            ("llama.txt", "killed\n", "none of the numbers"),
            ("core.dump", "", "ends in .dump"),
        ):
            with self.assertRaisesRegex(parse.Unreadable, why):
                parse.parse_file(self.write(name, text))
        (self.folder / "step_cost.txt").write_bytes(b"\xff\xfe\x00")
        with self.assertRaisesRegex(parse.Unreadable, "not a text"):
            parse.parse_file(self.folder / "step_cost.txt")


if __name__ == "__main__":
    unittest.main()
