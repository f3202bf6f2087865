"""Every public function, field and enumerator is bound or listed as left out. The list of what is public is that of tests/abi."""

import inspect
import os
import re
import unittest

from support import ROOT

import cgr
from cgr import _bound


def read_interface():
    """Functions, {struct: fields}, enumerators, as the compiler sees them."""
    functions, structs, values, members = [], {}, [], None
    with open(os.path.join(ROOT, "tests/abi/abi.txt"), encoding="utf-8") as lines:
        for line in lines:
            words = line.split()
            if line.startswith("struct "):
                members = structs.setdefault(words[1], [])
            elif line.startswith("enum "):
                members = None
            elif line.startswith("  ") and members is None:
                values.append((words[1], int(words[0])))
            elif line.startswith("  "):
                members.append(line.split("(*")[1].split(")")[0] if "(*" in line else words[-1].lstrip("*").split("[")[0])
            elif line.startswith("constant "):
                values.append((words[1], int(words[2])))
            elif line.startswith("function "):
                functions.append(re.search(r"\b(cgr_\w+)\(", line)[1])
    return functions, structs, values


def find(path):
    found = cgr
    for part in path.split("."):
        found = getattr(found, part)
    return found


class Coverage(unittest.TestCase):
    FUNCTIONS, STRUCTS, VALUES = read_interface()

    def test_the_interface_is_seen(self):
        self.assertGreater(len(self.FUNCTIONS), 140)
        self.assertGreater(len(self.STRUCTS), 50)
        self.assertGreater(len(self.VALUES), 200)

    def test_functions_are_bound_or_left_out(self):
        for name in self.FUNCTIONS:
            with self.subTest(name):
                self.assertNotEqual(name in _bound.FUNCTIONS, name in _bound.LEFT_OUT, "in one of both lists")
                if name in _bound.FUNCTIONS:
                    self.assertGreater(len(inspect.getdoc(find(_bound.FUNCTIONS[name])) or ""), 20, "its documentation")
        self.assertLessEqual({*_bound.FUNCTIONS, *_bound.LEFT_OUT}, set(self.FUNCTIONS))

    def test_fields_are_bound_or_left_out(self):
        for struct, fields in self.STRUCTS.items():
            with self.subTest(struct):
                self.assertNotEqual(struct in _bound.STRUCTS, struct in _bound.LEFT_OUT_STRUCTS, "in one of both lists")
                if struct not in _bound.STRUCTS:
                    continue
                bound = {name for name, value in vars(find(_bound.STRUCTS[struct])).items() if inspect.isgetsetdescriptor(value)}
                left_out = {field for field in fields if f"{struct}.{field}" in _bound.LEFT_OUT_FIELDS}
                self.assertEqual(bound | left_out, set(fields))
                self.assertFalse(bound & left_out)

    def test_enumerators_have_the_compilers_values(self):
        for name, value in self.VALUES:
            if not name.endswith("_") and name not in ("CGR_HEADER_VERSION", "CGR_CONFIG_MAGIC"):
                self.assertEqual(find(_bound.ENUMERATORS[name]), value, name)

    def test_reasons_are_given(self):
        for reasons in (_bound.LEFT_OUT, _bound.LEFT_OUT_STRUCTS, _bound.LEFT_OUT_FIELDS):
            for name, why in reasons.items():
                self.assertGreater(len(why), 7, name)

    def test_fields_can_be_written_and_read(self):
        samples = {int: 1, float: 0.5, bool: True, str: "a"}
        for name in _bound.STRUCTS.values():
            struct = find(name)()
            for field in (f for f, value in vars(type(struct)).items() if inspect.isgetsetdescriptor(value)):
                value = getattr(struct, field)
                sample = samples.get(type(value), 1 if isinstance(value, int) else value)
                if isinstance(value, tuple) and isinstance(value[0], tuple):
                    self.assertRaises(AttributeError, setattr, struct, field, value)
                elif not isinstance(value, cgr.Address) and value is not None:
                    setattr(struct, field, sample)
                    self.assertEqual(repr(getattr(struct, field)), repr(getattr(struct, field)))
                    if isinstance(value, (int, float)):
                        self.assertEqual(getattr(struct, field), sample, f"{name}.{field}")

    def test_stubs_name_what_there_is(self):
        with open(os.path.join(os.path.dirname(cgr.__file__), "_cgr.pyi"), encoding="utf-8") as file:
            text = file.read()
        compile(text, "_cgr.pyi", "exec")
        for name in ("def plan_size(input: PlanInput) -> int", "def request_open(self, tag: int) -> int", "class Batch:"):
            self.assertIn(name, text)


if __name__ == "__main__":
    unittest.main()
