"""Makes the guide: the project's pages and a reference of the public headers, as HTML that needs nothing else.

    guide.py OUT.tar        in the project's root

docs/README.md is the index: its tables are the menu. Each page that a page links becomes one, too, and so does each file and folder of
sources, so that no link leads out of the guide. The pages go through cmark-gfm. Without it, only the reference is made, and the
index says so.
"""

import glob
import html
import io
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tarfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import frame  # noqa: E402
import reference  # noqa: E402

START = "docs/README.md"
RESULTS = ("profiles/RESULTS.md", "Results")  # in the menu even if the index does not name it
PUBLIC = "include/cgr"


def slug(heading):
    """The anchor that GitHub gives a heading."""
    text = html.unescape(re.sub(r"<[^>]*>", "", heading)).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def is_text(path):
    with open(path, "rb") as file:
        begin = file.read(4096)
    return b"\0" not in begin


def files_below(folder):
    """Those that are the project's: neither hidden nor made by running it."""
    out = []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        out += [posixpath.join(place, name) for name in sorted(files) if not name.startswith(".")]
    return sorted(out)


def resolve(path, target):
    """A link of the page at `path`: the file that it names, and its anchor with the #."""
    file, _, anchor = target.partition("#")
    file = posixpath.normpath(posixpath.join(posixpath.dirname(path), file)) if file else path
    return file, "#" + anchor if anchor else ""


def read_menu(text):
    """The index's tables, by the headings over them: titles, with (path, label) of each row."""
    groups = []
    for line in text.split("\n"):
        heading, row = re.match(r"## (.*)", line), re.match(r"\| \[([^]]+)\]\(([^)#]+\.md)\)", line)
        if heading:
            groups.append((heading.group(1).strip(), []))
        elif row and groups:
            groups[-1][1].append((resolve(START, row.group(2))[0], row.group(1)))
    return [(title, rows) for title, rows in groups if rows]


class Guide:
    def __init__(self):
        self.reference = reference.Reference({os.path.basename(path): read(path)
                                              for path in sorted(glob.glob(PUBLIC + "/**/*.h", recursive=True))})
        self.rendered = shutil.which("cmark-gfm") is not None
        self.names = {}     # path to the name of its page
        self.pages = {}     # name of a page to its title and body
        self.pictures = {}  # name to bytes
        self.linked_by = {}  # path of a source to the titles of pages that link it
        self.wanted = []

    # Names of pages.

    def name_of(self, path):
        """The page of a file or folder of the project, which is made if it is not there yet."""
        if path in self.names:
            return self.names[path]
        flat = path.replace("/", "_")
        if path == START:
            name = "index.html"
        elif path.endswith(".md"):
            name = (flat[len("docs_"):] if path.startswith("docs/") else flat)[:-len(".md")].lower() + ".html"
        else:
            name = ("folder_" if os.path.isdir(path) else "source_") + flat + ".html"
        if name in self.names.values():
            raise ValueError("%s would be the page of two files, one of them %s" % (name, path))
        self.names[path] = name
        self.wanted.append(path)
        return name

    def link_target(self, path, target):
        """Where a link of the page at `path` leads in the guide."""
        if re.match(r"[a-z]+:", target):
            return target
        file, anchor = resolve(path, target)
        if not os.path.exists(file):
            raise ValueError("%s links %s: there is no such file, or //tests/docs:linked does not name it" % (path, target))
        if file == PUBLIC or posixpath.dirname(file) == PUBLIC and os.path.isdir(file):
            return reference.INDEX
        if file.startswith(PUBLIC + "/"):
            return reference.page_of(posixpath.basename(file)) + anchor
        if not file.endswith(".md"):
            self.linked_by.setdefault(file, set()).add(path)
        return self.name_of(file) + anchor

    # Bodies of pages.

    def title(self, path):
        found = re.search(r"^# (.*)$", read(path), re.M)
        return re.sub(r"[`*]|\[([^]]*)\]\([^)]*\)", r"\1", found.group(1)) if found else path

    def page(self, path):
        run = subprocess.run(["cmark-gfm", "-e", "table"], input=read(path).encode(), stdout=subprocess.PIPE, check=True)
        page = run.stdout.decode().replace("<!-- raw HTML omitted -->\n", "").replace("<!-- raw HTML omitted -->", "")
        used = []

        def heading(found):
            anchor = slug(found.group(2))
            used.append(anchor)
            if used.count(anchor) > 1:
                anchor += "-%d" % (used.count(anchor) - 1)
            return '<h%s id="%s">%s</h%s>' % (found.group(1), anchor, found.group(2), found.group(1))

        def link(found):
            return '<a href="%s"%s>%s</a>' % (html.escape(self.link_target(path, html.unescape(found.group(1)))), found.group(2), found.group(3))

        def picture(found):
            file = resolve(path, html.unescape(found.group(1)))[0]
            with open(file, "rb") as data:
                self.pictures[posixpath.basename(file)] = data.read()
            return '<img src="%s"' % posixpath.basename(file)
        page = re.sub(r"<h([1-6])>(.*?)</h\1>", heading, page)
        page = re.sub(r'<a href="([^"]*)"([^>]*)>(.*?)</a>', link, page, flags=re.S)
        page = re.sub(r'<img src="([^":]*)"', picture, page)
        page = page.replace("<table>", '<div class="scroll"><table>').replace("</table>", "</table></div>")
        return self.reference.link_code(page)

    def source_page(self, path):
        lines = self.reference.link_names(html.escape(read(path))).rstrip("\n").split("\n")
        code = "".join('<span id="L%d">%s</span>' % (i + 1, line) for i, line in enumerate(lines))
        return '<pre class="source">%s</pre>' % code

    def folder_page(self, path):
        rows = []
        for file in files_below(path):
            shown = html.escape(file[len(path) + 1:])
            if is_text(file):
                self.linked_by.setdefault(file, set()).add(path)
                shown = '<a href="%s">%s</a>' % (html.escape(self.name_of(file)), shown)
            rows.append("<li>%s</li>" % shown)
        return "<ul>%s</ul>" % "".join(rows)

    def linked_from(self, path):
        """Links back to what has led here."""
        pages = sorted(self.linked_by[path])
        links = ['<a href="%s">%s</a>' % (self.names[page], html.escape(self.label(page))) for page in pages]
        return "<p>Linked from %s.</p>" % ", ".join(links)

    def label(self, path):
        return self.labels.get(path) or (self.title(path) if path.endswith(".md") else path + "/")

    def make(self, path):
        if path.endswith(".md"):
            return self.title(path), self.page(path)
        body = self.folder_page(path) if os.path.isdir(path) else self.source_page(path)
        return path, "<h1><code>%s</code></h1>%s%s" % (html.escape(path), self.linked_from(path), body)

    # The whole.

    def menu(self):
        """Groups of the frame: the index's, and the reference."""
        groups = read_menu(read(START)) if self.rendered else []
        if groups and os.path.exists(RESULTS[0]) and not any(path == RESULTS[0] for _, rows in groups for path, _ in rows):
            groups[-1][1].append(RESULTS)
        self.labels = {path: label for _, rows in groups for path, label in rows}
        out = [(title, [(self.name_of(path), label, False) for path, label in rows]) for title, rows in groups]
        listed = next((entries for title, entries in out if title == "Reference"), None)
        if listed is None:
            listed = []
            out.append(("Reference", listed))
        listed.append((reference.INDEX, "Functions and structs", False))
        listed += [(reference.page_of(name), name, True) for name in self.reference.headers]
        return out

    def sections(self, body):
        """The headings of the second level: anchor and text."""
        return [(anchor, re.sub(r"<[^>]*>", "", text)) for anchor, text in re.findall(r'<h2 id="([^"]+)">(.*?)</h2>', body)]

    def search_entries(self):
        """What the search finds: pages, their sections, and public names."""
        out = []
        for name, (title, body) in self.pages.items():
            if name.startswith(("source_", "folder_")):
                continue
            out.append([title, name, "page"])
            if not name.startswith("reference"):
                found = re.findall(r'<h([23]) id="([^"]+)">(.*?)</h\1>', body)
                out += [[html.unescape(re.sub(r"<[^>]*>", "", text)), "%s#%s" % (name, anchor), title] for _, anchor, text in found]
        kinds = {item.name: item.kind for item in self.reference.items}
        for name, target in self.reference.targets.items():
            owner = target.partition("#")[2].split(".")[0]
            out.append([name, target, kinds.get(name) or kinds.get(owner, "macro")])
        return out

    def files(self):
        """Name to contents, as bytes."""
        self.name_of(START)
        framing = frame.Frame("cgr " + self.reference.version, self.menu())
        while self.rendered and self.wanted:
            path = self.wanted.pop(0)
            self.pages[self.names[path]] = self.make(path)
        if not self.rendered:
            self.pages["index.html"] = ("cgr", "<h1>cgr</h1><p>There was no cmark-gfm where this was made, so the guide's pages are missing: "
                                        'read docs/*.md. Here is the <a href="reference.html">reference</a>.</p>')
        self.pages.update(self.reference.pages())
        out = {name: framing.whole(name, title, body, self.sections(body)).encode() for name, (title, body) in self.pages.items()}
        out["style.css"] = frame.STYLE.lstrip().encode()
        out["search.js"] = frame.search_script(self.search_entries()).encode()
        out.update(self.pictures)
        return out


def main(out):
    with tarfile.open(out, "w") as tar:
        for name, data in sorted(Guide().files().items()):
            info = tarfile.TarInfo("guide/" + name)  # time 0: equal sources make equal files
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
