"""The reference: a page for each public header, made from its comments and declarations, and a first page that leads to all of them."""

import html
import itertools
import re

import headers

# In the order in which an engine needs them: those of cgr.h, then those apart from it.
ENGINE = ["base.h", "device.h", "needs.h", "attention.h", "config.h", "requests.h", "record.h", "step.h", "graphs.h"]
APART = ["inspect.h", "tracing.h", "names.h", "ask.h", "planners.h", "gather.h", "programs.h", "stops.h", "ranks.h", "collectives.h", "nccl.h",
         "fa3.h", "flashinfer.h", "flashmla.h", "block_table.h", "bindings.h"]
INDEX = "reference.html"


def page_of(header):
    return "reference_%s.html" % header[:-len(".h")]


class Reference:
    def __init__(self, texts):
        """`texts`: name of a header to its text."""
        order = ["cgr.h"] + ENGINE + APART
        self.headers = {name: texts[name] for name in order + sorted(set(texts) - set(order)) if name in texts}
        self.items = [item for name, text in self.headers.items() for item in headers.read_header(text, name)]
        self.page_by_entry = {name: page_of(item.header) for item in self.items for name in (item.name, item.init) if name}
        self.targets = {name: "%s#%s" % (self.page_by_entry[anchor.split(".")[0]], anchor)
                        for name, anchor in headers.names_of(self.items).items()}
        version = texts.get("base.h", "")
        self.version = ".".join(re.findall(r"^#define CGR_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", version, re.M))

    # Links of names to their entries.

    def link_names(self, text, own=""):
        """`text` is HTML without links; `own` is the name whose entry it is in."""
        def link(found):
            target = self.targets.get(found.group(0)) or self.targets.get(found.group(1))
            if not target or target.partition("#")[2] == own:
                return found.group(0)
            return '<a href="%s">%s</a>' % (target, found.group(0))
        return re.sub(r"\b(cgr_[a-z0-9_]+|CGR_[A-Z0-9_]+)(?:\.[a-z_0-9]+)?\b", link, text)

    def link_code(self, page):
        """Names within <code> that is in no link already."""
        parts = re.split(r"(<a\b.*?</a>)", page, flags=re.S)
        code = re.compile(r"(<code[^>]*>)(.*?)(</code>)", re.S)
        return "".join(part if i % 2 else code.sub(lambda m: m.group(1) + self.link_names(m.group(2)) + m.group(3), part)
                       for i, part in enumerate(parts))

    # Entries.

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
        table = '<div class="scroll"><table class="members">%s</table></div>' % "".join(rows)
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
            return '<h2 id="%s">%s</h2>' % (self.part_anchor(title), html.escape(self.capital(title))) if title else self.prose(item.doc)
        names = ", ".join('<code id="%s">%s</code>' % (each.name, each.name) for each in items)
        doc = "" if title else self.prose(item.doc, item.name if len(items) == 1 else "")
        parts = [doc, self.code(items)] if len(items) > 1 or item.members else [self.code(items), doc]
        return "<h3>%s</h3>%s" % (names, "".join(parts))

    @staticmethod
    def capital(title):
        return title[:1].upper() + title[1:]

    @staticmethod
    def part_anchor(title):
        return "part-" + re.sub(r"\W+", "-", title.lower()).strip("-")

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

    # Pages.

    def items_of(self, header):
        """Its entries; the macros of the version, with which base.h begins, come last."""
        lists = self.together(item for item in self.items if item.header == header)
        return sorted(lists, key=lambda items: bool(re.match(r"CGR_(HEADER_)?VERSION", items[0].name)))

    def header_page(self, header):
        out = ["<h1><code>%s</code></h1>" % header]
        version_begun = False
        for items in self.items_of(header):
            if items[0].name == "CGR_VERSION_MAJOR" and not version_begun:
                version_begun = True
                out.append('<h2 id="part-version">Version</h2>')
            out.append(self.entry(items))
        return "\n".join(out)

    def summary(self, header):
        """The first paragraph of its first comment."""
        first = next((item for item in self.items if item.header == header and item.kind == "text"), None)
        return self.words(" ".join(first.doc.split("\n\n")[0].split("\n- ")[0].split())) if first else ""

    def functions(self, names):
        return " · ".join('<a href="%s"><code>%s</code></a>' % (self.targets[name], name) for name in names)

    def index_page(self):
        out = ["<h1>Reference</h1><p>cgr %s, made from the comments of the headers.</p>" % self.version]
        for anchor, title, names in (("engine", "What an engine needs", ["cgr.h"] + ENGINE),
                                     ("apart", "Apart from cgr.h", [name for name in self.headers if name not in ["cgr.h"] + ENGINE])):
            out.append('<h2 id="%s">%s</h2>' % (anchor, title))
            for header in [name for name in names if name in self.headers]:
                functions = [item.name for item in self.items if item.header == header and item.kind == "function"]
                out.append('<h3 id="%s"><a href="%s"><code>%s</code></a></h3><p>%s</p><p class="names">%s</p>' %
                           (header, page_of(header), header, self.summary(header), self.functions(functions)))
        out.append('<h2 id="functions">All functions</h2><p class="names">%s</p>' %
                   self.functions(sorted(item.name for item in self.items if item.kind == "function")))
        return "\n".join(out)

    def pages(self):
        """File name to title and body."""
        out = {INDEX: ("Reference", self.index_page())}
        out.update({page_of(name): (name, self.header_page(name)) for name in self.headers})
        return out
