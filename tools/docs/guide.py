"""Makes the guide: the pages of docs/ and a reference of the public headers, as HTML that needs nothing else.

    guide.py OUT.tar FILE...      FILE: the headers (.h) and the pages (.md), by their paths from the project's root

If the project's README is among them, its section on the least that an engine writes becomes a page of the guide. The pages go
through cmark-gfm. Without it, only the reference is made, and the index says so.
"""

import html
import io
import itertools
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tarfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import headers  # noqa: E402

ORDER = ["base.h", "cgr.h", "device.h", "attention.h", "config.h", "requests.h", "record.h", "step.h", "graphs.h", "inspect.h", "tracing.h",
         "names.h", "planners.h", "fa3.h", "flashinfer.h", "flashmla.h", "block_table.h", "bindings.h"]
README, SHOWN = "README.md", "Embed it"
STYLE = """
:root { color-scheme: light dark; --line: #8884; --faint: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0; display: flex; flex-wrap: wrap; }
nav { flex: 0 0 13em; padding: 1.5em 1em; font-size: 90%; border-right: 1px solid var(--line); }
nav a { display: block; padding: .1em 0; text-decoration: none; }
main { flex: 1 1 30em; min-width: 0; max-width: 58em; padding: 1em 2em 4em; }
code, pre { font: 13.5px/1.45 ui-monospace, monospace; }
pre { background: var(--faint); padding: .7em 1em; overflow-x: auto; }
code a { text-decoration: none; border-bottom: 1px dotted; color: inherit; }
table { border-collapse: collapse; margin: 1em 0; display: block; overflow-x: auto; }
td, th { border: 1px solid var(--line); padding: .25em .6em; text-align: left; vertical-align: top; }
h3 { margin-top: 2.2em; } .part { background: var(--faint); } nav { box-sizing: border-box; } .contract { opacity: .75; font-size: 90%; } :target { background: #fc05; }
"""


def slug(heading):
    """The anchor that GitHub gives a heading."""
    text = html.unescape(re.sub(r"<[^>]*>", "", heading)).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def read_section(text, title):
    """The part of a page under a heading of the second level, as a page of its own."""
    found = re.search(r"^## %s\n(.*?)(?=^## |\Z)" % re.escape(title), text, re.S | re.M)
    if not found:
        raise ValueError("README has no section \"%s\"" % title)
    return "# %s\n%s" % (title, found.group(1))


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class Guide:
    def __init__(self, paths):
        self.texts = {path: read(path) for path in paths}
        if README in self.texts:
            self.texts[README] = read_section(self.texts[README], SHOWN)
        self.pages = {path: self.page_name(path) for path in paths if path.endswith(".md")}
        by_name = {posixpath.basename(path): text for path, text in self.texts.items() if path.endswith(".h")}
        self.headers = {name: by_name[name] for name in ORDER + sorted(set(by_name) - set(ORDER)) if name in by_name}
        self.items = [item for name, text in self.headers.items() for item in headers.read_header(text, name)]
        self.anchors = headers.names_of(self.items)

    @staticmethod
    def page_name(path):
        if path == README:
            return SHOWN.lower().replace(" ", "_") + ".html"
        name = posixpath.basename(path)[:-len(".md")].lower()
        return "index.html" if name == "readme" else name + ".html"

    # Links of names to their entries.

    def link_names(self, text, own=""):
        """`text` is HTML without links; `own` is the name whose entry it is in."""
        def link(found):
            anchor = self.anchors.get(found.group(0)) or self.anchors.get(found.group(1))
            anchor = None if anchor == own else anchor
            return '<a href="reference.html#%s">%s</a>' % (anchor, found.group(0)) if anchor else found.group(0)
        return re.sub(r"\b(cgr_[a-z0-9_]+|CGR_[A-Z0-9_]+)(?:\.[a-z_0-9]+)?\b", link, text)

    def link_code(self, page):
        """Names within <code> that is in no link already."""
        parts = re.split(r"(<a\b.*?</a>)", page, flags=re.S)
        code = re.compile(r"(<code[^>]*>)(.*?)(</code>)", re.S)
        return "".join(part if i % 2 else code.sub(lambda m: m.group(1) + self.link_names(m.group(2)) + m.group(3), part)
                       for i, part in enumerate(parts))

    # The reference.

    def words(self, text, own=""):
        """Text of a comment as HTML: names are links, but for the entry's own, and `this` is code."""
        text = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))
        return self.link_names(text, own)

    def prose(self, doc, own=""):
        """A comment as HTML: paragraphs, lists, and lines that are indented by more than a list's as they are."""
        parts = []  # (kind, lines)
        for line in doc.split("\n"):
            kind = ("pre" if re.match(r" {3,}\S|  \{", line) else "li" if line.startswith("- ") else
                    "contract" if line.startswith("Threads ") else "p")
            if not line.strip():
                parts.append(("", []))
            elif parts and kind == parts[-1][0] and kind in ("p", "pre"):
                parts[-1][1].append(line)
            elif parts and kind == "p" and line.startswith("  ") and parts[-1][0] == "li":
                parts[-1][1].append(line)
            else:
                parts.append((kind, [line]))
        form = {"p": "<p>%s</p>", "contract": '<p class="contract">%s</p>', "li": "<ul><li>%s</li></ul>"}
        out = []
        for kind, lines in parts:
            if kind == "pre":
                out.append("<pre>%s</pre>" % self.link_names(html.escape("\n".join(lines), quote=False), own))
            elif kind:
                text = " ".join(line.strip() for line in lines)
                out.append(form[kind] % self.words(text[2:] if kind == "li" else text, own))
        return "\n".join(out).replace("</ul>\n<ul>", "\n")

    def members(self, item):
        rows = []
        for member in item.members:
            if member.part:
                rows.append('<tr class="part"><td colspan="2">%s</td></tr>' % self.words(member.part, item.name))
            ids = "".join('<a id="%s.%s"></a>' % (item.name, name) for name in member.names)
            code = html.escape(member.code, quote=False)
            rows.append("<tr><td>%s<code>%s</code></td><td>%s</td></tr>" %
                        (ids, code if item.kind == "enum" else self.link_names(code, item.name), self.words(member.doc, item.name)))
        table = "<table>%s</table>" % "".join(rows)
        if item.init:
            table += '<p id="%s">Begins as <code>%s</code>.</p>' % (item.init, item.init)
        return table

    def code(self, items):
        """Declarations as they stand in the header; structs and enums as tables."""
        out = []
        for tabled, group in itertools.groupby(items, lambda item: item.kind in ("struct", "enum")):
            if tabled:
                out += [self.members(item) for item in group]
            else:
                lines = [self.link_names(html.escape(item.code.replace("CGR_API ", ""), quote=False), item.name) for item in group]
                out.append("<pre>%s</pre>" % "\n".join(lines))
        return "".join(out)

    def entry(self, items):
        """What one comment is about: a declaration, or several, over which it stands once."""
        item = items[0]
        title = headers.section(item.doc)
        if item.kind == "text":
            if title:
                return "<h2>%s</h2>" % html.escape(title)
            return self.prose(item.doc)
        names = ", ".join('<code id="%s">%s</code>' % (each.name, each.name) for each in items)
        doc = "" if title else self.prose(item.doc, item.name if len(items) == 1 else "")
        parts = [doc, self.code(items)] if len(items) > 1 or item.members else [self.code(items), doc]
        return "<h3>%s</h3>%s" % (names, "".join(parts))

    @staticmethod
    def together(items):
        """The items in lists: those that share a comment are in one."""
        lists = []
        for item in items:
            if item.shares:
                lists[-1].append(item)
            else:
                lists.append([item])
        return lists

    def reference(self):
        version = ".".join(re.search(r"#define CGR_VERSION_%s (\d+)" % part, self.headers["base.h"]).group(1)
                           for part in ("MAJOR", "MINOR", "PATCH"))
        out = ["<h1>Reference</h1><p>cgr %s. Made from the comments of the headers, in their order.</p><ul>" % version]
        out += ['<li><a href="#%s">%s</a></li>' % (name, name) for name in self.headers]
        out += ['<li><a href="#functions">all functions</a></li></ul>']
        for name in self.headers:
            out.append('<h2 id="%s">%s</h2>' % (name, name))
            out += [self.entry(items) for items in self.together(item for item in self.items if item.header == name)]
        names = sorted(item.name for item in self.items if item.kind == "function")
        out.append('<h2 id="functions">All functions</h2><p>%s</p>' %
                   " · ".join('<a href="#%s"><code>%s</code></a>' % (name, name) for name in names))
        return "\n".join(out)

    # The pages.

    def link_target(self, path, target):
        """Where a link of the page at `path` leads in the guide; None: to a file that is not part of it."""
        if re.match(r"[a-z]+:", target):
            return target
        file, _, anchor = target.partition("#")
        file = posixpath.normpath(posixpath.join(posixpath.dirname(path), file)) if file else path
        anchor = "#" + anchor if anchor else ""
        if file == README and anchor.lower() == "#" + slug(SHOWN) and file in self.pages:
            return self.pages[file]
        if file in self.pages and file != README:  # of which the guide has that part alone
            return self.pages[file] + anchor
        if any(path.endswith(".h") and posixpath.dirname(path) == file for path in self.texts):
            return "reference.html"
        if file.endswith(".h") and file in self.texts:
            return "reference.html#" + posixpath.basename(file)
        return None

    def page(self, path):
        run = subprocess.run(["cmark-gfm", "-e", "table"], input=self.texts[path].encode(), stdout=subprocess.PIPE, check=True)
        page = run.stdout.decode().replace("<!-- raw HTML omitted -->\n", "")
        page = re.sub(r"<h([1-6])>(.*?)</h\1>", lambda m: '<h%s id="%s">%s</h%s>' % (m.group(1), slug(m.group(2)), m.group(2), m.group(1)), page)

        def link(found):
            target = self.link_target(path, html.unescape(found.group(1)))
            if target is None:
                return '<span title="%s">%s</span>' % (found.group(1), found.group(2))
            return '<a href="%s">%s</a>' % (html.escape(target), found.group(2))
        return self.link_code(re.sub(r'<a href="([^"]*)">(.*?)</a>', link, page, flags=re.S))

    def title(self, path):
        return re.search(r"^# (.*)$", self.texts[path], re.M).group(1)

    def ordered(self):
        """The pages as the index names them, then the others."""
        index = next((path for path, name in self.pages.items() if name == "index.html"), None)
        linked = re.findall(r"\]\(([^)#]+\.md)\)", self.texts[index]) if index else []
        linked = [posixpath.normpath(posixpath.join(posixpath.dirname(index), target)) for target in linked]
        first = [path for path in (index, README) if path in self.pages]
        return list(dict.fromkeys(first + [path for path in linked if path in self.pages] + sorted(self.pages)))

    def files(self):
        """Name to HTML."""
        rendered = shutil.which("cmark-gfm") is not None
        order = self.ordered() if rendered else []
        nav = "".join('<a href="%s">%s</a>' % (self.pages[path], html.escape(self.title(path))) for path in order)
        nav += '<a href="reference.html">Reference</a>' + "".join(
            '<a href="reference.html#%s">&nbsp;&nbsp;%s</a>' % (name, name) for name in self.headers)

        def whole(title, body):
            return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
                    "<title>%s</title><style>%s</style></head><body><nav>%s</nav><main>\n%s\n</main></body></html>\n"
                    % (html.escape(title), STYLE, nav, body))
        out = {self.pages[path]: whole(self.title(path), self.page(path)) for path in order}
        out["reference.html"] = whole("Reference", self.reference())
        if not rendered:
            out["index.html"] = whole("cgr", "<h1>cgr</h1><p>There was no cmark-gfm where this was made, so the guide's pages are missing: "
                                      'read docs/*.md. Here is the <a href="reference.html">reference</a>.</p>')
        return out


def main(out, *paths):
    with tarfile.open(out, "w") as tar:
        for name, text in sorted(Guide(paths).files().items()):
            info = tarfile.TarInfo("guide/" + name)  # time 0: equal sources make equal files
            data = text.encode()
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


if __name__ == "__main__":
    main(*sys.argv[1:])
