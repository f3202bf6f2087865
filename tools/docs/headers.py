"""Reads the public headers: what each declares, and the comment that it has. Knows the style of these headers and no other C."""

import re

NAME = re.compile(r"\b(?:cgr_[a-z0-9_]+|CGR_[A-Z0-9_]+)\b")
CONTRACT = re.compile(r"^Threads .* · Capture .* · Sync .* · Alloc .*$", re.M)


class Item:
    """A declaration. `kind`: function, struct, enum, constant, macro, callback, handle, or text (prose between declarations)."""

    def __init__(self, kind, name, header, doc, code, members=()):
        self.kind, self.name, self.header, self.doc, self.code = kind, name, header, doc, code
        self.members = list(members)  # (names, code, comment before, comment after) of fields and enumerators

    def contract(self):
        found = CONTRACT.search(self.doc)
        return found.group(0) if found else ""


def plain(comment):
    """The text of a comment without its stars; indentation beyond them stays."""
    lines = [re.sub(r"^ ?\* ?", "", line) for line in comment[2:-2].split("\n")]
    return "\n".join(line.rstrip() for line in lines).strip()


def plain_member(comment):
    return " ".join(comment[2:-2].split())


def split_members(body, end):
    """Fields (end ";") or enumerators (","): code, the comment on lines of its own before it, the one after it."""
    members, code, before, depth, begun = [], "", "", 0, False
    for token in re.findall(r"/\*.*?\*/|\n|[^\n/]+|/", body, re.S):
        if token.startswith("/*"):
            if code.strip():  # within a declaration that goes on: of what it follows
                members.append([code.strip(), before, plain_member(token)])
                code, before, begun = "", "", True
            elif begun:
                members[-1][2] = (members[-1][2] + " " + plain_member(token)).strip()
            else:
                before = (before + " " + plain_member(token)).strip()
        elif token == "\n":
            begun = False
            code += " "
        else:
            for c in token:
                depth += (c in "([{") - (c in ")]}")
                if c == end and depth == 0:
                    if code.strip():
                        members.append([code.strip(), before, ""])
                        code, before = "", ""
                    begun = True
                else:
                    code += c
    if code.strip():
        members.append([code.strip(), before, ""])
    return members


def field_names(code):
    pointer = re.search(r"\(\*(\w+)\)", code)
    if pointer:
        return [pointer.group(1)]
    return [re.search(r"(\w+)\s*(?:\[[^]]*\]\s*)*$", part.strip()).group(1) for part in code.split(",")]


def statuses(text):
    """CGR_STATUS_LIST: name, number, text."""
    return re.findall(r'X\((CGR_\w+), (\d+), "([^"]*)"\)', text)


def read_enum(name, body, text):
    if name == "cgr_status":
        return [([n], "%s = %s" % (n, number), "", words) for n, number, words in statuses(text)]
    return [([re.match(r"\w+", code).group(0)], " ".join(code.split()), before, after)
            for code, before, after in split_members(body, ",")]


def read_struct(body):
    return [(field_names(code), " ".join(code.split()), before, after) for code, before, after in split_members(body, ";")]


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
HIDDEN = re.compile(r"CGR_(API|STATUS_LIST|STATUS_ENUM|\w+_H|\w+_INIT)$")


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
            used = used or not name.endswith("_H")  # what stands above the guard of a header is about the header
            continue
        members = read_enum(name, found.group(2), text) if kind == "enum" else read_struct(found.group(2)) if kind == "struct" else ()
        items.append(Item(kind, name, header, doc, code, members))
        used = True
    return items


def section(doc):
    """The title, if a comment is a line between parts of a header."""
    found = re.match(r"^-{20,} ?(.*)$", doc)
    return found.group(1).strip() if found else None


def names_of(items, texts):
    """Every public name, with the anchor of its entry in the reference."""
    anchors = {}
    for item in items:
        if not item.name:
            continue
        anchors.setdefault(item.name, item.name)
        for names, _, _, _ in item.members:
            for name in names:
                anchors.setdefault(name if item.kind == "enum" else item.name + "." + name, item.name + "." + name)
    for text in texts:  # what has no entry of its own: the INIT macros belong to their structs, the rest to its header
        for name in re.findall(r"#define (CGR_\w+)", text):
            owner = name[:-len("_INIT")].lower() if name.endswith("_INIT") else ""
            if owner in anchors:
                anchors.setdefault(name, owner)
    return anchors
