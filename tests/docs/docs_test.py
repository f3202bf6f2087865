"""Tests of the pages, and of the reference that is made from the headers. Runs in the project's root: docs_test.py [CLASS...]"""

import glob
import os
import re
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pages  # noqa: E402
from pages import headers, read  # noqa: E402

HEADERS = sorted(glob.glob("include/cgr/**/*.h", recursive=True))
OLD = "docs/porting_0_11.md"  # names what was there before 0.11
NAMED = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "buffers/PROTOCOL.md", "profiles/README.md"] + sorted(set(glob.glob("docs/*.md")) - {OLD})
# The changelog may name what is no longer there: its links are checked, its names are not.
PAGES = NAMED + [OLD, "CHANGELOG.md", "examples/README.md", "examples/llama/model/README.md", "profiles/decode.md", "profiles/step.md"]
PAGES += [path for path in ["profiles/RESULTS.md"] if os.path.exists(path)]


def items():
    return [item for path in HEADERS for item in headers.read_header(read(path), os.path.basename(path))]


def known_names():
    return headers.names_of(items())


class Links(unittest.TestCase):
    def anchors_of(self, path):
        return pages.anchors(read(path))

    def test_lead_somewhere(self):
        self.assertGreater(len(PAGES), 12)
        dead = [d for path in PAGES for d in pages.dead_links(path, read(path), os.path.exists, self.anchors_of)]
        self.assertEqual(dead, [])

    def test_that_are_dead_are_seen(self):
        text = "# A page\n[a](b.md) [c](#a-page) [d](#another) [e](../include/cgr/cgr.h) [f](threads.md#threads) [g](threads.md#no)\n"
        dead = pages.dead_links("docs/x.md", text, lambda p: p == "docs/x.md" or os.path.exists(p),
                                lambda p: pages.anchors(text if p == "docs/x.md" else read(p)))
        self.assertEqual([re.match(r"docs/x.md: (\S+):", d).group(1) for d in dead], ["b.md", "#another", "threads.md#no"])

    def test_that_are_written_otherwise_are_seen(self):
        text = "[a][one] [b][two] [c](x.md \"title\")\n\n[one]: nofile.md\n<a href=\"nowhere.md\">d</a> <a id=1 href='threads.md'>e</a>\n"
        dead = pages.dead_links("docs/y.md", text, os.path.exists, lambda p: [])
        self.assertEqual([re.match(r"docs/y.md: (\S+):", d).group(1) for d in dead], ["[two]", "x.md", "nofile.md", "nowhere.md"])

    def test_index_names_every_page(self):
        for path in glob.glob("docs/*.md"):
            name = os.path.basename(path)
            if name != "README.md":
                self.assertIn("](%s)" % name, read("docs/README.md"))


class Names(unittest.TestCase):
    def test_are_declared(self):
        known = known_names()
        structs = {item.name for item in items() if item.kind == "struct"}
        self.assertGreater(len(known), 1000)
        self.assertEqual([u for path in NAMED for u in pages.unknown_names(path, read(path), known)], [])
        self.assertEqual([u for path in NAMED for u in pages.unknown_fields(path, read(path), known, structs)], [])

    def test_that_are_misspelt_are_seen(self):
        known = known_names()
        text = "`cgr_step_lunch` `cgr_step_launch` `CGR_OK` `CGR_KO` `cgr_fa3_*` `cgr_fa4_*` `cgr_record_` `cgr_config.max_row`"
        self.assertEqual(pages.unknown_names("x", text, known), ["x: cgr_step_lunch", "x: CGR_KO", "x: cgr_fa4_"])
        self.assertEqual(pages.unknown_fields("x", text, known, {"cgr_config"}), ["x: cgr_config.max_row"])
        text = "`config.max_row` `cgr_config->max_requestz` `config->max_requests` `config.c` `engine.x`"
        self.assertEqual(pages.unknown_fields("x", text, known, {"cgr_config"}),
                         ["x: cgr_config.max_row", "x: cgr_config.max_requestz"])

    def test_exceptions_are_used(self):
        text = "".join(read(path) for path in NAMED)
        self.assertEqual([name for name in pages.NO_PUBLIC_NAMES if not re.search(r"(?<!\w)%s(?!\w)" % re.escape(name), text)], [])

    def test_every_status_and_guard_is_explained(self):
        page = read("docs/errors.md")
        for item in items():
            if item.name in ("cgr_status", "cgr_guard_error"):
                for names, _, _, _ in item.members:
                    if names[0] != "CGR_GUARD_NONE":
                        self.assertIn("| `%s` |" % names[0], page)


class Code(unittest.TestCase):
    def test_compiles(self):
        count, said = 0, []
        with tempfile.TemporaryDirectory() as folder:
            for path in sorted(glob.glob("docs/*.md")):
                for line, prelude, code in pages.blocks(read(path)):
                    said.append(pages.compile_block(path, line, prelude, code, folder))
                    count += 1
        self.assertGreater(count, 30)
        self.assertEqual("\n".join(filter(None, said)), "")

    def test_is_found_however_it_is_fenced(self):
        text = "```c\none\n```\n- a list\n\n  ```c\n  two\n  ```\n```C\nthree\n```\n```c title=x\nfour\n```\n```sh\nfive\n```\n"
        self.assertEqual([(line, code.strip()) for line, _, code in pages.blocks(text)], [(2, "one"), (7, "two"), (10, "three"), (13, "four")])

    def test_that_is_wrong_is_seen(self):
        good = "TRY(cgr_step_launch(rt, &step, stream));\n"
        wrong = [good.replace("launch", "lunch"), good.replace(", stream", ""), "int32_t unused = 0;\n", "step.colour = 1;\n"]
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(pages.compile_block("x.md", 1, "step", good, folder), "")
            for code in wrong:
                self.assertIn("x.md:1:", pages.compile_block("x.md", 1, "step", code, folder))
            self.assertIn("there is no", pages.compile_block("x.md", 1, "nowhere", good, folder))

    def test_that_is_not_in_the_example_is_seen(self):
        text = "<!-- from: examples/minimal.c -->\n```c\nint main(int argc, char **argv) {\n%s```\n"
        for inside, said in (("", ""), ("  return 0;\n", "x.md:3: examples/minimal.c has no such lines")):
            (line, source, code), = pages.blocks(text % inside)
            self.assertEqual(pages.compile_block("x.md", line, source, code, None), said)
        self.assertIn("no such lines", pages.compile_block("x.md", 1, "examples/none.c", "", None))


class Reference(unittest.TestCase):
    """Compared with what separate regular expressions find in the headers without their comments."""

    def bare(self, path):
        text = re.sub(r"/\*.*?\*/", "", read(path), flags=re.S)
        return re.sub(r"^#define.*(?:\\\n.*)*", "", text, flags=re.M)

    def test_has_every_function_with_its_contract(self):
        found = {item.name: item for item in items() if item.kind == "function"}
        declared = {name for path in HEADERS for name in re.findall(r"^CGR_API\b[^;]*?\b(cgr_\w+)\(", self.bare(path), re.M)}
        self.assertEqual(declared, set(found))
        self.assertGreater(len(declared), 100)
        self.assertEqual([name for name, item in found.items() if not item.contract()], [])

    def test_has_every_field_and_value(self):
        found = {item.name: {name for names, _, _, _ in item.members for name in names} for item in items() if item.members}
        for path in HEADERS:
            for kind, name, body in re.findall(r"^typedef (struct|enum) (cgr_\w+) \{(.*?)\} \2;", self.bare(path), re.S | re.M):
                if name == "cgr_status":
                    want = set(re.findall(r"^  X\((CGR_\w+),", read(path), re.M))
                elif name == "cgr_struct":
                    want = set(re.findall(r"^  X\((CGR_\w+),", read(path), re.M)) | {"CGR_STRUCT_KEY"}
                elif kind == "enum":
                    want = set(re.findall(r"\bCGR_[A-Z0-9_]+\b", re.sub(r"=[^,}]*", "", body)))
                else:
                    flat = re.sub(r"\(\*(\w+)\)\s*\([^)]*\)", r"\1", re.sub(r"\[[^]]*\]", "", body))
                    want = {part.split()[-1].lstrip("*") for field in flat.split(";") if field.strip() for part in field.split(",")}
                self.assertEqual(want, found.pop(name), name)
        self.assertEqual(found, {})

    def test_comments_over_several_fields_are_no_fields_own(self):
        """In these headers such a comment comes after an empty line."""
        count, of_parts = 0, {member.names[0]: member for item in items() for member in item.members if member.part}
        for path in HEADERS:
            for comment, line in re.findall(r"\n\n  /\*(.*?)\*/\n  ([^\n]*)\n", read(path), re.S):
                words = " ".join(re.sub(r"\n *\*? ", "\n", comment).split())
                name = re.match(r"(?:const )?(?:\w+ )?\**(\w+)", line).group(1)
                self.assertEqual(of_parts[name].part, words, name)
                self.assertNotIn(words, of_parts[name].doc, name)
                count += 1
        self.assertGreater(count, 4)
        self.assertEqual(count, len(of_parts))
        backend = next(item for item in items() if item.name == "cgr_backend")
        self.assertIn("Every reason why", next(m for m in backend.members if m.names == ["check"]).doc)  # over one field alone

    def test_structs_have_their_first_values(self):
        inits = {name for path in HEADERS for name in re.findall(r"^#define (CGR_\w+_INIT)\b", read(path), re.M)}
        self.assertGreater(len(inits), 30)
        self.assertEqual(inits, {item.init for item in items() if item.init})

    def test_buffers_say_what_they_hold(self):
        for item in items():
            if item.name == "cgr_buffer":
                for names, _, _, after in item.members:
                    if names[0] not in ("CGR_BUFFER_COUNT_", "CGR_BUFFER_DECLARED"):
                        self.assertRegex(after, r"^i(32|64) ", names[0])


if __name__ == "__main__":
    unittest.main()
