"""Reads the public headers: what each declares, and its comment. Knows the style of these headers and no other C."""

import re
from collections import namedtuple

NAME = re.compile(r"\b(?:cgr_[a-z0-9_]+|CGR_[A-Z0-9_]+)\b")
CONTRACT = re.compile(r"^Threads .* · Capture .* · Sync .* · Alloc .*$", re.M)


# A field or an enumerator. `part`: the comment, after an empty line, over this and those that follow it; `doc`: its own.
Member = namedtuple("Member", "names code part doc")


class Item:
    """A declaration. `kind`: function, struct, enum, constant, macro, callback, handle, or text (prose between declarations)."""

    def __init__(self, kind, name, header, doc, code, members=(), shares=False):
        self.kind, self.name, self.header, self.doc, self.code = kind, name, header, doc, code
        self.members = list(members)
        self.shares = shares  # its comment is that of the declaration before it
        self.init = ""        # the macro that a struct begins as

    def contract(self):
        found = CONTRACT.search(self.doc)
        return found.group(0) if found else ""


def plain(comment):
    """The text of a comment without its stars; indentation beyond them stays."""
    lines = [re.sub(r"^ ?\* ?", "", line) for line in comment[2:-2].split("\n")]
    return "\n".join(line.rstrip() for line in lines).strip()


def plain_member(comment):
    return " ".join(re.sub(r"\n *\* ", "\n", comment[2:-2]).split())


def split_members(body, end):
    """Fields (end ";") or enumerators (","): code, the comment of a part that begins here, its own comments."""
    members, code, depth, begun, empty = [], "", 0, False, False
    part, own = [], []
    for token in re.findall(r"/\*.*?\*/|\n *\n|\n|[^\n/]+|/", body, re.S):
        if token.startswith("/*"):
            if code.strip():  # within a declaration that goes on: of what it follows
                members.append([code.strip(), part, own + [plain_member(token)]])
                code, part, own, begun = "", [], [], True
            elif begun:
                members[-1][2].append(plain_member(token))
            else:
                (part if empty else own).append(plain_member(token))
            empty = False
        elif token.startswith("\n"):
            begun, empty = False, token != "\n"
            code += " "
        else:
            for c in token:
                depth += (c in "([{") - (c in ")]}")
                if c == end and depth == 0:
                    if code.strip():
                        members.append([code.strip(), part, own])
                        code, part, own = "", [], []
                    begun = True
                else:
                    code += c
    if code.strip():
        members.append([code.strip(), part, own])
    return [(code, " ".join(part), " ".join(own)) for code, part, own in members]


def field_names(code):
    pointer = re.search(r"\(\*(\w+)\)", code)
    if pointer:
        return [pointer.group(1)]
    return [re.search(r"(\w+)\s*(?:\[[^]]*\]\s*)*$", part.strip()).group(1) for part in code.split(",")]


def statuses(text):
    """CGR_STATUS_LIST: name, number, text; CGR_STRUCT_LIST: name, number, struct."""
    return re.findall(r'X\((CGR_\w+), (\d+), "?([^"\n,]*)', text)


def read_enum(name, body, text):
    listed = [Member([n], "%s = %s" % (n, number), "", words) for n, number, words in statuses(text)]
    if name == "cgr_status":
        return listed
    if name == "cgr_struct":
        return [Member(["CGR_STRUCT_KEY"], "CGR_STRUCT_KEY = 0", "", "cgr_key, which has no size and begins with zeros")] + listed
    return [Member([re.match(r"\w+", code).group(0)], " ".join(code.split()), part, own) for code, part, own in split_members(body, ",")]


def read_struct(body):
    return [Member(field_names(code), " ".join(code.split()), part, own) for code, part, own in split_members(body, ";")]


# What stands at the beginning of a line, in the order in which it is tried.
FORMS = [
    ("comment", re.compile(r"/\*.*?\*/", re.S)),
    ("struct", re.compile(r"typedef struct (cgr_\w+) \{\n?(.*?)\n?\} \1;", re.S)),
    ("enum", re.compile(r"typedef enum (cgr_\w+) \{\n?(.*?)\n?\} \1;", re.S)),
    ("constant", re.compile(r"enum \{ ?(CGR_\w+) = [^}]*\};(?:[ \t]*/\*.*?\*/)?", re.S)),
    ("function", re.compile(r"CGR_API [^;(]*?\b(cgr_\w+)\(.*?\);", re.S)),
    ("callback", re.compile(r"typedef [^;{]*\(\*(cgr_\w+)\)\(.*?\);", re.S)),
    ("handle", re.compile(r"typedef struct \w+ \*?(cgr_\w+|cudaStream_t);")),
    ("macro", re.compile(r"#define (CGR_\w+)(?:.*\\\n)*.*")),
]
HIDDEN = re.compile(r"CGR_(API|STATUS_LIST|STATUS_ENUM|STRUCT_LIST|STRUCT_ENUM|\w+_H|\w+_INIT)$")


def read_header(text, header):
    """The items of a header in their order."""
    items, at, doc, used = [], 0, "", False
    while at < len(text):
        if text.startswith("\n", at):
            blank, at = at > 0 and text[at - 1] == "\n", at + 1
            if blank:
                if doc and not used:
                    items.append(Item("text", "", header, doc, ""))
                doc, used = "", False
            continue
        for kind, form in FORMS:
            found = form.match(text, at)
            if found:
                break
        else:  # #include, #ifdef, extern "C": not declared
            at = text.find("\n", at) if "\n" in text[at:] else len(text)
            continue
        at, code = found.end(), found.group(0)
        if kind == "comment":
            doc, used = plain(code), False
            continue
        name = found.group(1)
        if HIDDEN.match(name):
            if name.endswith("_INIT") and items and items[-1].name == name[:-len("_INIT")].lower():
                items[-1].init = name
            used = used or not name.endswith("_H")  # what stands above the guard of a header is about the header
            continue
        members = read_enum(name, found.group(2), text) if kind == "enum" else read_struct(found.group(2)) if kind == "struct" else ()
        items.append(Item(kind, name, header, doc, code, members, shares=used and bool(doc)))
        used = True
    return items


def section(doc):
    """The title, if a comment is a line between parts of a header."""
    found = re.match(r"^-{20,} ?(.*)$", doc)
    return found.group(1).strip() if found else None


def names_of(items):
    """Every public name, with the anchor of its entry in the reference."""
    anchors = {}
    for item in items:
        if not item.name:
            continue
        anchors.setdefault(item.name, item.name)
        if item.init:
            anchors.setdefault(item.init, item.init)
        for member in item.members:
            for name in member.names:
                anchors.setdefault(name if item.kind == "enum" else item.name + "." + name, item.name + "." + name)
    return anchors
