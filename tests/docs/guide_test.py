"""Tests of the guide as HTML, and of the picture of a trace. Runs in the project's root: guide_test.py [CLASS...]"""

import glob
import html
import json
import os
import re
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pages  # noqa: E402
from pages import guide, headers, read  # noqa: E402
import trace_picture  # noqa: E402  (next to the guide)

HEADERS = sorted(glob.glob("include/cgr/**/*.h", recursive=True))


def items():
    return [item for path in HEADERS for item in headers.read_header(read(path), os.path.basename(path))]


def make_guide(folder):
    out = os.path.join(folder, "guide.tar")
    guide.main(out)
    with tarfile.open(out) as tar:
        return {os.path.basename(member.name): tar.extractfile(member).read().decode() for member in tar.getmembers()}


def search_index(files):
    return json.loads(files["search.js"].partition(" = ")[2].partition(";\n")[0])


def dead(files):
    """What leads nowhere: links and pictures of every page, and what the search finds."""
    ids = {name: set(re.findall(r' id="([^"]+)"', text)) for name, text in files.items()}
    links = [(name, found) for name, text in files.items() if name.endswith(".html") for found in re.findall(r' (?:href|src)="([^"]*)"', text)]
    links += [("search.js", target) for _, target, _ in search_index(files)]
    out = []
    for name, link in links:
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = html.unescape(link).partition("#")
        file = file or name
        if file not in files or (anchor and anchor not in ids[file]):
            out.append("%s: %s" % (name, link))
    return out


def body(text):
    return text.partition("<main>")[2]


class Html(unittest.TestCase):
    """Holds with cmark-gfm and without it."""

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            cls.files = make_guide(folder)

    def test_no_link_is_dead_and_none_is_dead_text(self):
        self.assertEqual(dead(self.files), [])
        self.assertEqual([name for name, text in self.files.items() if "<span title=" in text], [])

    def test_dead_links_are_seen(self):
        for page, gone in (("reference_step.html", ' id="cgr_step_prepare"'), ("reference_step.html", ' id="cgr_batch.rows"')):
            files = dict(self.files)
            files[page] = files[page].replace(gone, "")
            self.assertNotEqual(dead(files), [])
        del files["style.css"]
        self.assertIn("index.html: style.css", dead(files))

    def test_every_name_has_an_entry_on_the_page_of_its_header(self):
        for name, page in (("cgr_step_prepare", "step"), ("cgr_config.max_rows", "config"), ("cgr_status.CGR_ERROR_BUSY", "base"),
                           ("cgr_fa3_input", "fa3")):
            self.assertIn('id="%s"' % name, self.files["reference_%s.html" % page])
        for path in HEADERS:
            self.assertIn("reference_%s.html" % os.path.basename(path)[:-len(".h")], self.files)

    def test_the_reference_begins_with_what_an_engine_needs(self):
        index = body(self.files["reference.html"])
        places = [index.index('<h3 id="%s">' % name) for name in ("cgr.h", "base.h", "device.h", "step.h", "inspect.h", "fa3.h")]
        self.assertEqual(places, sorted(places))
        base = self.files["reference_base.html"]
        self.assertLess(base.index("Rules that hold for all headers"), base.index('id="cgr_status"'))
        self.assertLess(base.index('id="cgr_finding"'), base.index('id="CGR_VERSION_MAJOR"'))

    def test_a_comment_of_several_stands_once_over_them(self):
        found = re.search(r'<h3>((?:<code id="cgr_standing_\w+">.*?)+)</h3>(.*?)(?=<h[23])', self.files["reference_step.html"], re.S)
        self.assertEqual(re.findall(r'id="(\w+)"', found.group(1)), ["cgr_standing_" + verb for verb in ("add", "update", "remove", "swap")])
        self.assertEqual(self.files["reference_step.html"].count("The standing batch stays from step to step"), 1)
        self.assertLess(found.group(2).index("The standing batch"), found.group(2).index("<pre>"))
        self.assertEqual(re.sub(r"<[^>]*>", "", found.group(2)).count("cgr_status cgr_standing_"), 4)
        contracts = [item for item in items() if item.contract() and not item.shares]
        self.assertEqual(sum(text.count('<p class="contract">') for text in self.files.values()), len(contracts))

    def test_parts_of_a_struct_have_a_line_of_their_own(self):
        page = self.files["reference_config.html"]
        self.assertIn('<tr class="part"><td colspan="2">Limits.</td></tr><tr><td><a id="cgr_config.max_requests">', page)
        self.assertIn('<p id="CGR_CONFIG_INIT">', page)

    def test_needs_nothing_from_elsewhere(self):
        """Scripts, styles and pictures are files of the guide, which `dead` looks for."""
        for name, text in self.files.items():
            self.assertNotRegex(text, r'(?:src|<link[^>]*href)="(?:[a-z]+:|//)', name)
        self.assertNotRegex(self.files["style.css"] + self.files["search.js"], r"@import|url\(|fetch\(|XMLHttpRequest|import\(")

    def test_the_search_finds_every_public_name(self):
        found = {name for name, _, _ in search_index(self.files)}
        self.assertEqual(set(headers.names_of(items())) - found, set())

    def test_previous_and_next_lead_through_the_menu(self):
        linked = re.findall(r'<a href="([^"#]+)"', self.files["index.html"].partition("<nav>")[2].partition("</nav>")[0])
        seen, name = [], "index.html"
        while name:
            seen.append(name)
            following = re.search(r'<a rel="next" href="([^"]+)"', self.files[name])
            previous = re.search(r'<a rel="prev" href="([^"]+)"', self.files[name])
            self.assertEqual(previous and previous.group(1), seen[-2] if len(seen) > 1 else None)
            self.assertEqual(self.files[name].count('aria-current="page"'), len(seen) > 1, name)
            name = following and following.group(1)
        self.assertEqual(seen[1:], linked)

    def test_equal_sources_make_equal_files(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(make_guide(folder), self.files)


class Pages(unittest.TestCase):
    """Needs cmark-gfm."""

    @classmethod
    def setUpClass(cls):
        cls.guide = guide.Guide()
        cls.files = {name: data.decode() for name, data in cls.guide.files().items()}

    def test_are_rendered_and_linked_to_the_reference(self):
        self.assertIn('<code><a href="reference_step.html#cgr_step_prepare">cgr_step_prepare</a></code>', self.files["life_of_a_step.html"])
        self.assertIn('href="errors.html#what-a-guard-refused"', self.files["life_of_a_step.html"])
        self.assertIn('<div class="scroll"><table>', self.files["errors.html"])
        self.assertIn('<img src="trace.svg"', self.files["observing.html"])
        self.assertTrue(self.files["trace.svg"].startswith("<svg"))

    def test_every_link_of_a_page_is_a_link_in_the_guide(self):
        count = 0
        for path in glob.glob("docs/*.md") + ["README.md", "profiles/README.md", "examples/README.md"]:
            text = pages.without_code(read(path))
            page = body(self.files[self.guide.names[path]])
            for link in re.findall(r"(?<!`)(?<!!)\[[^]]*\]\(([^)\s]+)", text):
                self.assertIn('<a href="%s">' % html.escape(self.guide.link_target(path, link)), page, path)
                count += 1
        self.assertGreater(count, 100)

    def test_the_menu_is_the_index(self):
        menu = re.sub(r"<[^>]+>", "|", self.files["index.html"].partition("<nav>")[2].partition("</nav>")[0])
        labels = [label for _, rows in guide.read_menu(read("docs/README.md")) for _, label in rows]
        self.assertEqual(labels[0], "Quick start")
        self.assertEqual([label for label in labels if "|%s|" % label not in menu], [])
        if os.path.exists("profiles/RESULTS.md"):
            self.assertIn("|Results|", menu)

    def test_sources_keep_their_lines(self):
        page = self.files["source_examples_minimal.c.html"]
        code = page.partition('<pre class="source">')[2].partition("</pre>")[0]
        lines = [html.unescape(re.sub(r"<[^>]*>", "", line)) for line in re.findall(r'<span id="L\d+">(.*?)</span>', code)]
        self.assertEqual("\n".join(lines) + "\n", read("examples/minimal.c"))
        self.assertIn('<a href="reference_step.html#cgr_step_launch">', code)
        self.assertIn('Linked from <a href="readme.html">Quick start</a>', page)

    def test_folders_list_their_files(self):
        self.assertIn('<a href="examples_llama_model_readme.html">model/README.md</a>', self.files["folder_examples_llama.html"])

    def test_a_link_to_no_file_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "docs/x.md links nofile.c: there is no such file"):
            self.guide.link_target("docs/x.md", "nofile.c")

    def test_equal_headings_have_anchors_of_their_own(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.md")
            with open(path, "w", encoding="utf-8") as file:
                file.write("# A `b`\n## C\n## C\n")
            self.assertEqual(re.findall(r'id="([^"]+)"', self.guide.page(path)), ["a-b", "c", "c-1"])

    def test_without_a_converter_the_index_says_so(self):
        path = os.environ["PATH"]
        try:
            os.environ["PATH"] = ""
            with tempfile.TemporaryDirectory() as folder:
                files = make_guide(folder)
        finally:
            os.environ["PATH"] = path
        self.assertEqual({name for name in files if not name.startswith("reference")}, {"index.html", "search.js", "style.css"})
        self.assertIn("no cmark-gfm", files["index.html"])
        self.assertEqual(dead(files), [])


class Trace(unittest.TestCase):
    TRACE = {"traceEvents": [
        {"ph": "M", "tid": 1, "name": "thread_name", "args": {"name": "host"}},
        {"ph": "X", "tid": 1, "ts": 100.0, "dur": 1.0, "name": "launch", "args": {"seq": 4}},
        {"ph": "X", "tid": 2, "ts": 102.0, "dur": 40.0, "name": "step", "args": {"seq": 4}},
        {"ph": "X", "tid": 2, "ts": 102.0, "dur": 15.0, "name": "layer 0", "args": {"seq": 4}},
        {"ph": "X", "tid": 2, "ts": 116.995, "dur": 25.0, "name": "layer 1", "args": {"seq": 4}},
        {"ph": "X", "tid": 2, "ts": 150.0, "dur": 8.0, "name": "step", "args": {"seq": 5}},
        {"ph": "X", "tid": 3, "ts": 103.0, "dur": 1.0, "name": "the engine's <own>"}]}

    def test_shows_the_steps_that_were_asked_for(self):
        bars = trace_picture.read_events(self.TRACE, 4, 1)
        self.assertEqual([(name, round(begin, 3)) for _, name, begin, _ in bars],
                         [("launch 4", 0), ("step 4", 2), ("layer 0", 2), ("layer 1", 16.995)])
        self.assertEqual(len(trace_picture.read_events(self.TRACE)), 5)

    def test_puts_bars_below_those_that_they_are_inside(self):
        bars = [bar for bar in trace_picture.read_events(self.TRACE) if bar[0] == 2]
        self.assertEqual([(depth, name) for depth, name, _, _ in trace_picture.stack(bars)],
                         [(0, "step 4"), (1, "layer 0"), (1, "layer 1"), (0, "step 5")])

    def test_is_an_svg_with_its_names(self):
        picture = trace_picture.draw(self.TRACE)
        for text in ("host</text>", "prepare, launch 4</text>", "step 4</text>", '<rect class="layer"', "0 us</text>"):
            self.assertIn(text, picture)
        self.assertNotIn("own", picture)

    def test_without_steps_is_an_error(self):
        for trace, first in ((self.TRACE, 6), ({"traceEvents": []}, None)):
            with self.assertRaisesRegex(ValueError, "the trace has no step"):
                trace_picture.read_events(trace, first)


if __name__ == "__main__":
    unittest.main()
