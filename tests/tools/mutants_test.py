"""Tests of tools/mutants. Runs in the project's root: mutants_test.py [-v]"""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, "tools/mutants")
import places  # noqa: E402
import run  # noqa: E402


def mutants(body, head="int f(int a, int *b)"):
    """(kind, old, new) of a function with this body."""
    text = head + " {\n  " + body + "\n}\n"
    return [(place.kind, text[place.start:place.end], new) for place in places.places_of(text) for new in place.changes]


class Places(unittest.TestCase):
    def test_comparisons_are_flipped_or_off_by_one(self):
        self.assertEqual(mutants("return a < *b;"), [("compare", "<", "<="), ("compare", "<", ">=")])
        self.assertEqual(mutants("return a == *b;"), [("compare", "==", "!=")])

    def test_conditions_are_negated_or_fixed(self):
        self.assertEqual(mutants("if (a)\n    return a;"), [("condition", "a", "!(a)"), ("condition", "a", "0"), ("condition", "a", "1")])
        self.assertEqual(mutants("while (f(a, b))\n    ;"), [("condition", "f(a, b)", "!(f(a, b))"), ("condition", "f(a, b)", "0")])

    def test_operators_are_swapped_but_no_pointer_is_taken_for_one(self):
        self.assertEqual(mutants("return a * *b;"), [("operator", "*", "+")])
        self.assertEqual(mutants("return a && -a | *b;"), [("operator", "&&", "||"), ("operator", "|", "&")])
        self.assertEqual(mutants("int *c = &a;"), [])

    def test_constants_are_off_by_one(self):
        self.assertEqual(mutants("return 0x10u;"), [("constant", "0x10u", "(0x10u + 1)"), ("constant", "0x10u", "(0x10u - 1)")])

    def test_assignments_and_calls_are_left_out_but_no_declarations(self):
        self.assertEqual(mutants("b[a] = a;"), [("assignment", "b[a] = a;", ";")])
        self.assertEqual(mutants("*b += a;"), [("assignment", "*b += a;", ";"), ("operator", "+=", "-=")])
        self.assertEqual(mutants("f(a, b);"), [("call", "f(a, b);", ";")])
        self.assertEqual(mutants("int c = a;\n  return f(c, b);"), [])
        self.assertEqual(mutants("for (a = *b; a; a = *b)\n    f(a, b);"), [("call", "f(a, b);", ";")])

    def test_statuses_become_ok(self):
        self.assertEqual(mutants("return f(a, b);", "cgr_status f(int a, int *b)"), [("status", "f(a, b)", "CGR_OK")])
        self.assertEqual(mutants("return CGR_OK;", "cgr_status f(int a, int *b)"), [])

    def test_only_code_within_functions_is_changed(self):
        text = '#define N 3\nstatic int t[] = { 1, 2 };\nint f(void) {\n  /* a < 5 */ return g("1 < 2"); // 7\n}\n'
        self.assertEqual(places.places_of(text), [])


class Lists(unittest.TestCase):
    text = "int f(int a) {\n  if (a < 3)\n    return 1;\n  return 1;\n}\nint g(int a) {\n  h(a,\n    2);\n  return 1;\n}\n"

    def remembered(self, old, number, new):
        """The change of the number-th place with this text."""
        found = [place for place in places.places_of(self.text) if self.text[place.start:place.end] == old]
        return json.loads(json.dumps(places.remember("x.c", self.text, found[number], new)))

    def test_a_change_is_found_by_its_text(self):
        change = self.remembered("1", 2, "2")
        self.assertEqual((change["function"], change["line"]), ("g", 9))
        self.assertEqual(places.apply(self.text, change), self.text[:-5] + "2;\n}\n")
        self.assertEqual(places.apply("int e;\n\n" + self.text, change), "int e;\n\n" + self.text[:-5] + "2;\n}\n")
        self.assertIsNone(places.apply(self.text.replace("int g", "int i"), change))
        self.assertIsNone(places.apply(self.text.replace("return 1", "return 4"), change))

    def test_equal_lines_are_told_apart_by_their_number(self):
        text = "int f(int a) {\n  use(a);\n  use(a);\n}\n"
        for place, after in zip(places.places_of(text), ("  ;\n  use(a);\n", "  use(a);\n  ;\n")):
            changed = places.apply(text, places.remember("x.c", text, place, ";"))
            self.assertEqual(changed, "int f(int a) {\n" + after + "}\n")

    def test_lines_keep_their_numbers(self):
        change = self.remembered("h(a,\n    2);", 0, ";")
        self.assertEqual(places.apply(self.text, change), self.text.replace("h(a,\n    2);", ";\n"))


SOURCE = """int sum(int a, int b) {
  return a + b;
}
int unused(int a) {
  return a + 1;
}
"""
PROGRAM = "int sum(int a, int b);\nint main(void) { return sum(2, 3) != 5; }\n"


class Runs(unittest.TestCase):
    """A library of one source, of which a program tests one function."""

    def setUp(self):
        if subprocess.run(["gcc", "--version"], stdout=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("no gcc")
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root, self.build = scratch.name, os.path.join(scratch.name, "b")
        for folder in ("base", "b/tests", "b/run", "b/cgr_objects.dir"):
            os.makedirs(os.path.join(self.root, folder))
        self.write("base/sum.c", SOURCE)
        self.write("program.c", PROGRAM)
        command = f"gcc -O2 -fPIC -o cgr_objects.dir/sum.o -c {self.root}/base/sum.c"
        entry = {"directory": self.build, "file": f"{self.root}/base/sum.c", "command": command}
        self.write("b/compile_commands.json", json.dumps([entry]))
        for words in (command, "gcc -shared -Wl,-soname,libcgr_dev.so -o libcgr_dev.so cgr_objects.dir/sum.o",
                      "gcc -o tests/base_sum_test ../program.c libcgr_dev.so -Wl,--enable-new-dtags,-rpath," + self.build):
            subprocess.run(words.split(), cwd=self.build, check=True)

    def write(self, name, text):
        with open(os.path.join(self.root, name), "w", encoding="utf-8") as file:
            file.write(text)

    def mutate(self, *options):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(run.main([self.build, "--root", self.root, "--jobs", "2", *options]), 0)
        return out.getvalue().splitlines()

    def test_say_what_was_killed_and_what_survived(self):
        lines = self.mutate("--count", "9", "--list", self.root + "/list", "--survivors", self.root + "/left")
        self.assertIn("base/sum.c:2 operator: `+` -> `-`: killed by base_sum_test (no case), program 1 of 1", lines)
        self.assertIn("base/sum.c:5 operator: `+` -> `-`: survived, reached by 0 of 1 programs", lines)
        self.assertRegex(lines[-1], "^3 mutants in .* s: 1 killed, 2 survived, 0 equal, 0 broken, 0 gone, 0 unfinished$")
        again = self.mutate("--list", self.root + "/left")
        self.assertRegex(again[-1], "^2 mutants in .* s: 0 killed, 2 survived,")
        parts = [self.mutate("--list", self.root + "/list", "--shard", f"{i}/2")[1:-1] for i in (1, 2)]
        self.assertEqual(sorted(parts[0] + parts[1]), sorted(lines[1:-1]))

    def test_equal_and_broken_mutants_are_not_run(self):
        text = "int sum(int a, int b) {\n  while (0)\n    a = 1;\n  return a + b;\n}\n"
        self.write("base/sum.c", text)
        equal = {"file": "base/sum.c", "function": "sum", "line": 3, "kind": "constant", "text": "    a = 1;", "nth": 0, "column": 8,
                 "old": "1", "new": "(1 + 1)"}
        self.write("list", json.dumps([equal, dict(equal, new="(1 +)"), dict(equal, old="2")]))
        lines = self.mutate("--list", self.root + "/list")
        self.assertRegex(lines[-1], "^3 mutants in .* s: 0 killed, 0 survived, 1 equal, 1 broken, 1 gone, 0 unfinished$")

    def test_the_time_is_kept(self):
        self.assertRegex(self.mutate("--seconds", "0")[-1], "3 unfinished$")

    def test_a_program_that_fails_without_a_change_is_left_out(self):
        self.write("base/sum.c", SOURCE.replace("a + b", "a + b + 1"))
        subprocess.run(["gcc", "-O2", "-fPIC", "-o", "cgr_objects.dir/sum.o", "-c", "../base/sum.c"], cwd=self.build, check=True)
        self.assertIn("without a change base_sum_test failed (no case), so it is left out", self.mutate("--count", "1"))


BODY = "  int c = a < 3 ? a : a + 4;\n  if (c)\n    g(c);\n  a = c;\n  return h(c);\n"


class Sources:
    """Two sources in place of the library's."""

    def sources(self):
        return ["base/a.c", "base/b.c"]

    def text(self, source):
        return "".join(f"cgr_status {source[5]}{i}(int a) {{\n{BODY}}}\n" for i in range(9))


class Choices(unittest.TestCase):
    def test_the_same_seed_makes_the_same_list(self):
        built = Sources()
        chosen = run.choose(built, 40, 7)
        self.assertEqual(len(chosen), 40)
        self.assertEqual(chosen, run.choose(built, 40, 7))
        self.assertNotEqual(chosen, run.choose(built, 40, 8))
        self.assertEqual({change["kind"] for change in chosen},
                         {"assignment", "call", "compare", "condition", "constant", "operator", "status"})
        for change in chosen:
            self.assertNotEqual(places.apply(built.text(change["file"]), change), built.text(change["file"]))


if __name__ == "__main__":
    unittest.main()
