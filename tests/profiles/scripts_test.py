"""The scripts around Nsight and those that measure, and what profiles/README.md promises.

python3 -B tests/profiles/scripts_test.py [-v] [Class]      from the project's root; Python 3.10 and nothing else, but for Readme,
                                                            which needs the example built
"""

import os
import pathlib
import re
import shlex
import shutil
import sys
import unittest

from common import PROFILES, Folder, report, run


class Scripts(Folder):
    def words(self, *command):
        """What the script would run, a list of words for each command."""
        shown = run(*command)
        self.assertEqual((shown.returncode, shown.stderr), (0, ""), command)
        return [shlex.split(line) for line in shown.stdout.splitlines()]

    def test_nsys_traces_nodes_between_the_fences(self):
        profile, export = self.words(PROFILES / "nsys.sh", "--print", "--out", "a b", "my program", "--kind", "full")
        self.assertEqual(profile[:2], ["nsys", "profile"])
        for flag in (
            "--cuda-graph-trace=node",
            "--capture-range=cudaProfilerApi",
            "--trace=cuda,nvtx",
            "--stats=false",
            "--output=a b",
        ):
            self.assertIn(flag, profile)
        self.assertEqual(profile[-3:], ["my program", "--kind", "full"])
        self.assertEqual(
            export, ["nsys", "export", "--type=sqlite", "--force-overwrite=true", "--output=a b.sqlite", "a b.nsys-rep"]
        )

    def test_nsys_joins_labels_and_can_trace_all(self):
        profile, _, join = self.words(PROFILES / "nsys.sh", "--print", "--whole", "--labels", "l b.json", "--", "program")
        self.assertFalse([w for w in profile if w.startswith("--capture-range")])
        self.assertEqual(join, ["python3", str(PROFILES / "graph_time.py"), "--", "profile.sqlite", "l b.json"])
        profile, _ = self.words(PROFILES / "nsys.sh", "--print", "--graphs", "program")
        self.assertIn("--cuda-graph-trace=graph", profile)

    def test_ncu_measures_nodes_of_that_name(self):
        (profile,) = self.words(
            PROFILES / "ncu.sh",
            "--print",
            "--kernel",
            "a|b c",
            "--skip",
            "3",
            "--count",
            "2",
            "--set",
            "full",
            "--out",
            "o p",
            "x y",
            "z",
        )
        text = " ".join(profile)
        self.assertEqual(profile[0], "ncu")
        for flag in (
            "--graph-profiling node",
            "--target-processes all",
            "--launch-skip 3",
            "--launch-count 2",
            "--set full",
            "--profile-from-start off",
        ):
            self.assertIn(f" {flag} ", text)
        self.assertEqual(profile[profile.index("--kernel-name") + 1], "regex:a|b c")
        self.assertEqual(profile[profile.index("--export") + 1], "o p")
        self.assertEqual(profile[-2:], ["x y", "z"])
        (profile,) = self.words(PROFILES / "ncu.sh", "--print", "--range", "on demand", "--metrics", "a,b", "program")
        self.assertEqual(profile[profile.index("--nvtx") : profile.index("--nvtx") + 3], ["--nvtx", "--nvtx-include", "cgr@on demand/"])
        self.assertEqual(profile[profile.index("--metrics") + 1], "a,b")
        self.assertNotIn("--set", profile)
        (profile,) = self.words(PROFILES / "ncu.sh", "--print", "--whole", "program")
        self.assertNotIn("--nvtx", profile)
        self.assertNotIn("--kernel-name", profile)
        self.assertNotIn("--profile-from-start", profile)

    def test_what_is_wrong_is_said(self):
        for script, arguments, why in (
            ("nsys.sh", [], "no program is named"),
            ("nsys.sh", ["--nodes", "x"], "unknown option --nodes"),
            ("nsys.sh", ["--out"], "--out needs a value"),
            ("nsys.sh", ["--graphs", "--labels", "l", "x"], "--labels is for nodes"),
            ("ncu.sh", [], "no program is named"),
            ("ncu.sh", ["--count", "two", "x"], "--count is two"),
            ("ncu.sh", ["--set", "all", "x"], "--set is all"),
            ("ncu.sh", ["--count", "0", "x"], "--count is 0"),
            ("ncu.sh", ["--kernel"], "--kernel needs a value"),
            ("ncu.sh", ["--range"], "--range needs a value"),
            ("nsight_demo.sh", [], "0 names are given"),
            ("nsight_demo.sh", [self.folder, self.folder / "none"], "none is not built"),
        ):
            refused = run(PROFILES / script, *arguments)
            self.assertEqual(refused.returncode, 2, arguments)
            self.assertIn(why, refused.stderr)

    def test_without_the_tool_they_say_how_to_get_it(self):
        tools = self.folder / "bin"
        tools.mkdir()
        for tool in ("bash", "dirname", "env", "sed"):
            (tools / tool).symlink_to(shutil.which(tool))
        for script, tool in (("nsys.sh", "nsys"), ("ncu.sh", "ncu")):
            missing = run(PROFILES / script, "program", env={"PATH": str(tools), "CUDA_HOME": str(self.folder)})
            self.assertEqual(missing.returncode, 127)
            self.assertIn(f"{tool} is not on PATH. It is Nsight", missing.stderr)

    def test_the_demo_keeps_what_each_tool_printed(self):
        tools, program = self.folder / "bin", self.write("a step", "#!/bin/bash\n")
        program.chmod(0o755)
        script = '#!/bin/bash\necho "Version of {0} ${{@: -2}}"; [[ $1 == --import ]] || touch kernels.ncu-rep step.{1}; exit {2}\n'
        environment = dict(os.environ, PATH=f"{tools}:{os.environ['PATH']}", CUDA_HOME=str(self.folder), CGR_COMMIT="abc")
        for ncu, written, status in ((0, "nsys-rep", 0), (5, "qdstrm", 1)):
            self.write("bin/ncu", script.format("ncu", "x", ncu)).chmod(0o755)
            self.write("bin/nsys", script.format("nsys", written, 0)).chmod(0o755)
            shown = run(PROFILES / "nsight_demo.sh", self.folder / "out", program, env=environment)
            self.assertEqual((shown.returncode, shown.stderr), (status, ""))
            kernels, trace = ((self.folder / "out" / f"{name}_step.txt").read_text(encoding="utf-8") for name in ("ncu", "nsys"))
            self.assertIn("# commit: abc\n", kernels)
            self.assertIn("--nvtx-include cgr@cgr_step_launch/ --profile-from-start off", kernels)
            self.assertEqual(kernels.count("\n# exit status: 5\n" if ncu else "\nVersion of ncu --page details\n# exit status: 0\n"), 2)
            self.assertEqual("nsys stats" in trace, status == 0)
            self.assertEqual("has not made a report of them" in trace, status == 1)
            self.assertNotIn(str(self.folder / "a step"), kernels + trace)

    def test_what_the_program_ran_is_exported_and_joined(self):
        tools = self.folder / "bin"
        log = self.folder / "log"
        for tool in ("nsys", "python3"):
            self.write(
                f"bin/{tool}",
                f'#!/bin/bash\necho {tool} "$@" >> {shlex.quote(str(log))}\n'
                '[[ $1 != profile ]] || touch "$PWD/o p.nsys-rep" "$PWD/new.json"\n',
            ).chmod(0o755)
        environment = dict(os.environ, PATH=f"{tools}:{os.environ['PATH']}")
        made = run(PROFILES / "nsys.sh", "--out", "o p", "--labels", "new.json", "program", env=environment, cwd=self.folder)
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        first, second, third = log.read_text(encoding="utf-8").splitlines()
        self.assertRegex(first, "^nsys profile .* program$")
        self.assertRegex(second, "^nsys export .*o p.nsys-rep$")
        self.assertRegex(third, "^python3 .*graph_time.py -- o p.sqlite new.json$")
        self.write("old.json", "")
        stale = ["--out", "o p", "--labels", "old.json", "program"]
        old = run(PROFILES / "nsys.sh", *stale, env=environment, cwd=self.folder)
        self.assertEqual(old.returncode, 1)
        self.assertIn("has not written old.json", old.stderr)
        self.write("other.nsys-rep", "of an earlier run")
        unfenced = run(PROFILES / "nsys.sh", "--out", "other", "program", env=environment, cwd=self.folder)
        self.assertEqual(unfenced.returncode, 1)
        self.assertIn("needs --whole", unfenced.stderr)


class Measuring(Folder):
    """The scripts of tools/gpu that measure, with programs that only say what they were called with."""

    def program(self, name, text='echo "# $0 $*"'):
        self.write(name, f"#!/bin/bash\n{text}\n").chmod(0o755)

    def setUp(self):
        super().setUp()
        self.program("bin/nvidia-smi", "echo A GPU")
        self.program("bin/python3", 'echo "# python3 $*"')
        self.program("build/run/examples/llama/llama", 'echo "# llama $*"; printf "\\rprogress\\n" >&2; echo left out >&2')
        for source in PROFILES.glob("*.c"):
            self.program(f"build/profiles/{source.stem}")

    def measure(self, script, **environment):
        """How it ended, and the texts that it wrote."""
        path, given = f"{self.folder}/bin:{os.environ['PATH']}", {name: str(value) for name, value in environment.items()}
        made = run(f"tools/gpu/{script}", self.folder / script, env=dict(os.environ, PATH=path, CGR_COMMIT="abc", **given))
        return made, {file.stem: file.read_text(encoding="utf-8") for file in (self.folder / script).glob("*.txt")}

    def test_the_programs_of_a_cmake_build_write_what_the_readme_needs(self):
        made, text = self.measure("readme_numbers.sh", CGR_BUILD=self.folder / "build", CGR_LLAMA_CPP=self.folder / "bin")
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        self.assertEqual(text["step_cost"], f"# {self.folder}/build/profiles/step_cost cuda:0 300 40 tight,standing\n")
        self.assertEqual(text["llama_bench"].count("# llama --device cuda:0 --bench --random-weights 8b --mode full"), 1)
        self.assertEqual(text["llama_bench"].count("left out\n"), 4)
        self.assertNotIn("progress", text["llama_bench"])
        self.assertRegex(text["llama_cpp"], rf"llama_cpp.py --build {self.folder}/bin --depths 128 8b 1b")
        head = r"^# device: A GPU\n# driver: A GPU\n# library: cgr \d+\.\d+\.\d+\n# date: .*\n# commit: abc\n== --mode full\n"
        self.assertRegex(text["llama_modes"], head)
        self.assertEqual(len(re.findall(r"^== \d+ s, \d+ s in all$", made.stdout, re.M)), len(text))

    def test_all_programs_are_measured(self):
        made, text = self.measure("measure.sh", CGR_BUILD=self.folder / "build")
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        self.assertLessEqual({source.stem for source in PROFILES.glob("*.c")} - {"representative_step"}, set(text))

    def test_what_fails_is_told_and_the_others_go_on(self):
        self.program("build/profiles/step_cost", "echo no memory >&2; exit 3")
        made, text = self.measure("readme_numbers.sh", CGR_BUILD=self.folder / "build")
        self.assertEqual(made.returncode, 1)
        self.assertIn("== step_cost.txt: exit status 3\nno memory\n", made.stdout)
        self.assertIn("wait_cost", text)
        self.assertNotIn("llama_cpp", text)

    def test_folders_without_programs_are_refused(self):
        for environment, why in (
            ({"CGR_BUILD": self.folder / "bin"}, "expected a CMake build with -DCGR_PROFILES=ON"),
            ({"CGR_BUILD": self.folder / "build", "CGR_LLAMA_CPP": self.folder / "no"}, "No such file"),
        ):
            refused, _ = self.measure("readme_numbers.sh", **environment)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn(why, refused.stderr)


class Readme(unittest.TestCase):
    """Commands are the lines indented by four; what they name must exist."""

    TEXT = (PROFILES / "README.md").read_text(encoding="utf-8")
    COMMANDS = re.findall(r"^ {4}(\S.*)$", TEXT, re.M)
    LLAMA = ("bazel-bin/examples/llama/llama", "examples/llama/llama")

    def test_programs_exist(self):
        self.assertGreater(len(self.COMMANDS), 25)
        named = set()
        for command in self.COMMANDS:
            named |= {f"{name}.c" for name in re.findall(r"bazel-bin/(profiles/\w+)", command)}
            paths = re.findall(r"(?<![\w/-])((?:profiles|tools)/[\w/]+(?:\.\w+)?)(?= |$)", command)
            named |= {path for path in paths if not path.startswith("profiles/results/")}
        gone = {path for path in named if not (PROFILES.parent / path).is_file()}
        self.assertGreater(len(named), 15)
        self.assertEqual(gone, set())

    def test_every_program_is_named(self):
        for source in PROFILES.glob("*.c"):
            self.assertIn(source.stem, self.TEXT)

    def options_of(self, program):
        """What a program, or its source, says of its options."""
        if program.startswith("bazel-bin/profiles/"):
            sources = [PROFILES / f"{program.rpartition('/')[2]}.c", *(PROFILES / "support").glob("*.c")]
            return "".join(s.read_text(encoding="utf-8") for s in sources)
        if program in self.LLAMA:
            return run(next(filter(os.path.exists, self.LLAMA)), "--help").stdout
        if program == "profiles/report/run":
            return report("--help").stdout
        return run(*([sys.executable, "-B"] if program.endswith(".py") else []), program, "--help").stdout

    @unittest.skipUnless(any(map(os.path.exists, LLAMA)), "the example llama is not built")
    def test_options_exist(self):
        checked = 0
        for command in self.COMMANDS:
            words = [w for w in shlex.split(command) if w != "python3"]
            starts = [0] + [i for i, w in enumerate(words) if i and w.startswith("bazel-bin/")]
            for begin, end in zip(starts, starts[1:] + [len(words)]):
                options = [w for w in words[begin + 1 : end] if w.startswith("--")]
                text = self.options_of(words[begin]) if options else ""
                for option in options:
                    self.assertRegex(text, rf"{option}\b", f"{words[begin]} has no {option}: {command}")
                    checked += 1
        self.assertGreater(checked, 20)

    def test_reasons_are_those_of_the_library(self):
        told = set(re.findall(r"`([a-z ]+)`", "".join(re.findall(r"^\| (`.*?) \|", self.TEXT, re.M))))
        names = set(re.findall(r'\{ CGR_REASON_\w+, "([a-z ]+)" \}', pathlib.Path("base/names.c").read_text(encoding="utf-8")))
        self.assertGreater(len(names), 10)
        # The others are replays.
        self.assertEqual(told, names - {"exact", "padded", "superset", "forced"})

    def test_anchors_lead_to_headings(self):
        headings = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^## (.*)$", self.TEXT, re.M)}
        for anchor in re.findall(r"\(#([\w-]+)\)", self.TEXT):
            self.assertIn(anchor, headings)


if __name__ == "__main__":
    unittest.main()
