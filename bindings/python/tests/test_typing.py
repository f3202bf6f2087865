"""What type checkers see: stubs of what is made from the headers, annotations in what is written by hand."""

import ast
import functools
import importlib.util
import inspect
import os
import subprocess
import sys
import tempfile
import unittest

import cgr

FOLDER = os.path.dirname(cgr.__file__)
USER = '''
import numpy as np

import cgr


def serve(pages: list[int]) -> int:
    with cgr.Device("host") as device, device.stream() as stream:

        def record(recorder: cgr.Recorder) -> None:
            recorder.buffer(cgr.Buffer.NEXT_TOKENS)

        runtime = cgr.Runtime(device=device, groups=[cgr.Group(num_pages=64)], max_requests=4, max_tokens=16, max_seq_len=64)
        runtime.capture(record)
        row = runtime.request_open(7)
        runtime.request_set_pages(row, group=0, first=0, pages=pages)
        step = runtime.prepare(cgr.Batch(rows=[row], query_lens=np.array([3], np.int32), tokens=[1, 2, 3]))
        step.launch(stream)
        result = step.wait()
        reveal_type(runtime.config.max_requests)
        runtime.close()
        return 0 if result is None else result.num_requests


def refused(error: cgr.CgrError) -> str:
    return f"{error.status.name} {error.findings[0].text} {cgr.version() + cgr.TOKEN_LAST}"
'''
MISTAKES = {
    "runtime.config.max_requests": ("runtime.config.max_request", '"Config" has no attribute "max_request"'),
    "error.status.name": ("error.state.name", '"CgrError" has no attribute "state"'),
    "cgr.TOKEN_LAST": ("cgr.TOKEN_LATE", "has no attribute"),
    "num_pages=64": ("pages=64", 'Unexpected keyword argument "pages"'),
    "request_open(7)": ('request_open("a")', "incompatible type"),
}


@functools.cache
def read(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return ast.parse(file.read(), name)


def defined(tree):
    """The names of a stub's own definitions and of what it exports, but the private ones."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname for alias in node.names if alias.asname}
        elif isinstance(node, ast.AnnAssign):
            names.add(node.target.id)
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            names.add(node.name)
    return {name for name in names if not name.startswith("_")}


def named(parameter):
    """Those by position have a name in some Pythons alone."""
    return "/" if parameter.kind is parameter.POSITIONAL_ONLY else parameter.name


class Stubs(unittest.TestCase):
    def test_the_package_says_that_it_has_types(self):
        self.assertTrue(os.path.exists(os.path.join(FOLDER, "py.typed")))

    def test_the_package_has_what_its_stub_has(self):
        lists = {"FUNCTIONS", "LEFT_OUT", "LEFT_OUT_FIELDS", "LEFT_OUT_STRUCTS", "enums"}
        self.assertEqual(defined(read("__init__.pyi")), set(cgr.__all__) | lists)

    def test_the_extension_has_what_its_stub_has(self):
        tree = read("_cgr.pyi")
        self.assertEqual(defined(tree), {name for name in vars(cgr._cgr) if not name.startswith("_")})
        for node in (node for node in tree.body if isinstance(node, ast.ClassDef)):
            there = getattr(cgr._cgr, node.name)
            with self.subTest(node.name):
                self.assertEqual(defined(node), {name for name in dir(there) if not name.startswith("_")})

    def test_arguments_are_named_as_in_the_stub(self):
        tree, compared = read("_cgr.pyi"), 0
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        owners = [(tree, cgr._cgr)] + [(node, getattr(cgr._cgr, node.name)) for node in classes]
        for owner, there in owners:
            for node in (node for node in owner.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")):
                try:
                    signature = inspect.signature(getattr(there, node.name))
                except ValueError:  # written by hand in C, without one
                    continue
                arguments = [a for a in node.args.posonlyargs + node.args.args if a.arg != "self"]
                given = ["/" if a in node.args.posonlyargs else a.arg for a in arguments]
                with self.subTest(f"{there.__name__}.{node.name}"):
                    self.assertEqual(given, [named(p) for p in signature.parameters.values() if p.name != "self"])
                    compared += 1
        self.assertGreater(compared, 100)

    def test_all_that_is_written_by_hand_is_annotated(self):
        for name in ("__init__.py", "engine.py", "errors.py", "torch.py", "_torch_host.py"):
            functions = [node for node in ast.walk(read(name)) if isinstance(node, ast.FunctionDef)]
            for node in functions:
                arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
                arguments += [a for a in (node.args.vararg, node.args.kwarg) if a]
                missing = [a.arg for a in arguments if a.annotation is None and a.arg not in ("self", "cls")]
                with self.subTest(f"{name}: {node.name}"):
                    self.assertEqual(missing, [])
                    self.assertIsNotNone(node.returns)


@unittest.skipUnless(importlib.util.find_spec("mypy"), "no mypy")
class Strict(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cache = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.cache.cleanup)

    def mypy(self, *arguments):
        options = ["--strict", "--no-warn-unused-ignores", "--cache-dir", self.cache.name]
        command = [sys.executable, "-m", "mypy", *options, *arguments]
        path = os.pathsep.join((os.path.dirname(FOLDER), os.environ.get("PYTHONPATH", "")))
        places = dict(MYPYPATH=os.path.dirname(FOLDER), PYTHONPATH=path)
        run = subprocess.run(command, capture_output=True, text=True, env=os.environ | places)
        return run.returncode, run.stdout + run.stderr

    def test_the_package(self):
        modules = ["cgr", "cgr.engine", "cgr.errors", "cgr.enums"]
        modules += ["cgr.torch", "cgr._torch_host"] if importlib.util.find_spec("torch") else []
        status, text = self.mypy(*(word for module in modules for word in ("-m", module)))
        self.assertEqual(status, 0, text)

    def test_a_program(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "user.py")
            wrong = USER
            for right, (mistake, _) in MISTAKES.items():
                wrong = wrong.replace(right, mistake)
            why_not = [why for _, why in MISTAKES.values()]
            for program, expected, reasons in ((USER, 0, ['Revealed type is "int"']), (wrong, 1, why_not)):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(program)
                status, text = self.mypy(path)
                self.assertEqual(status, expected, text)
                for why in reasons:
                    self.assertIn(why, text)
                self.assertEqual(text.count("error:"), len(MISTAKES) * expected, text)


if __name__ == "__main__":
    unittest.main()
