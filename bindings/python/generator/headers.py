"""Reads cgr's public headers into a model: enums, structs and functions, each with its comment.

The headers are formatted by hand and regular, so regular expressions of the standard library do. A parser of C (pycparser) needs
the preprocessor, which drops the comments that documentation comes from.
"""

import os
import re
from dataclasses import dataclass, field

HEADERS = (
    "base device needs attention config requests record step graphs inspect tracing names planners gather ask stops "
    "programs ranks collectives interop/block_table interop/fa3 interop/flashinfer interop/flashmla interop/nccl bindings"
).split()


@dataclass
class Type:
    """`base` with `stars` levels of pointers; `const` says that what the innermost pointer points to is const."""

    base: str
    stars: int = 0
    const: bool = False
    dims: tuple = ()


@dataclass
class Variable:
    name: str
    type: Type
    doc: str = ""
    parameters: list = None  # of a pointer to a function


@dataclass
class Enum:
    name: str  # "" for a nameless one
    members: list = field(default_factory=list)  # (name, value, doc)
    doc: str = ""


@dataclass
class Struct:
    name: str
    fields: list = field(default_factory=list)
    doc: str = ""


@dataclass
class Function:
    name: str
    returns: Type
    parameters: list
    doc: str = ""


@dataclass
class Model:
    enums: dict = field(default_factory=dict)
    constants: dict = field(default_factory=dict)  # enumerators of nameless enums: name -> (value, doc)
    structs: dict = field(default_factory=dict)
    functions: dict = field(default_factory=dict)
    inits: dict = field(default_factory=dict)  # struct -> its enumerator of cgr_struct
    callbacks: set = field(default_factory=set)  # typedefs of pointers to functions


def plain(comment):
    """The text of a comment, as one paragraph for each of its paragraphs."""
    lines = [re.sub(r"^\s*\*? ?", "", line.strip()) for line in comment.split("\n")]
    text = "\n".join(line.rstrip() for line in lines).strip()
    return "\n\n".join(join_lines(paragraph) for paragraph in re.split(r"\n\s*\n", text))


def join_lines(paragraph):
    """One line for running text; lists and what is indented keep their lines."""
    lines = paragraph.split("\n")
    out = lines[0]
    for line in lines[1:]:
        keeps = line.startswith(("- ", "  ", "Threads ")) or out.endswith(":")
        out += ("\n" if keeps else " ") + line.rstrip()
    return out


def expand_lists(text):
    """Replaces the enumerators that X-macros make by plain ones."""
    lists = {}
    for name, body in re.findall(r"#define (CGR_\w+_LIST)\(X\)((?:[^\n]*\\\n)*[^\n]*)\n", text):
        lists[name] = re.findall(r"X\((\w+), (\w+), (\w+|\"[^\"]*\")(?:, (\w+))?\)", body)
    for name, entries in lists.items():
        members = "".join(f"{e[0]} = {e[1]}, /* {e[2].strip(chr(34))} */\n" for e in entries)
        text = re.sub(rf"#define \w+_ENUM\([^\n]*\n\s*{name}\(\w+\)\n#undef \w+\n", lambda _, m=members: m, text)
    return text, lists


def without_preprocessor(text):
    text = re.sub(r"#ifdef __cplusplus\n.*?#endif\n", "", text, flags=re.S)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*\n", "\n", text, flags=re.M)


def parse_type(text):
    """What is before a name: "const int32_t *"."""
    words = text.replace("*", " * ").split()
    stars = words.count("*")
    before = words[: words.index("*")] if stars else words
    base = " ".join(w for w in before if w not in ("const", "struct"))
    return Type(base, stars, "const" in before)


def parse_variable(text):
    """`const int32_t *rows[2]`; also a pointer to a function."""
    text = " ".join(text.split())
    pointer = re.match(r"(.*?)\(\*(\w+)\)\((.*)\)$", text)
    if pointer:
        return Variable(pointer[2], parse_type(pointer[1]), parameters=parse_parameters(pointer[3]))
    match = re.match(r"(.*?)(\w+)((?:\[\w+\])*)$", text)
    type_ = parse_type(match[1])
    type_.dims = tuple(re.findall(r"\[(\w+)\]", match[3]))
    return Variable(match[2], type_)


def parse_parameters(text):
    text = " ".join(text.split())
    return [] if text in ("", "void") else [parse_variable(part) for part in text.split(",")]


ITEM = re.compile(r"/\*(?P<comment>.*?)\*/|(?P<code>[^;/]+;)", re.S)


def parse_fields(body):
    """The members of a struct. A comment belongs to the declaration before it on its line, or to the function pointer after it."""
    fields, before, last_end = [], "", 0
    for match in ITEM.finditer(body):
        gap_has_newline = "\n" in body[last_end : match.start()]
        if match["comment"] is not None:
            text = plain(match["comment"])
            if fields and not gap_has_newline and not fields[-1].doc:
                for member in reversed(fields):
                    if member.doc or getattr(member, "line", None) != getattr(fields[-1], "line", None):
                        break
                    member.doc = text
            else:
                before = text
        else:
            declared = parse_declaration(match["code"].rstrip(";").strip())
            for member in declared:
                member.line = match.start()
                if member.parameters is not None:
                    member.doc = before
            fields += declared
            before = ""
        last_end = match.end()
    return fields


def parse_declaration(code):
    if "(*" in code:
        return [parse_variable(code)]
    first, *others = code.split(",")
    variable = parse_variable(first)
    start = " ".join(first.split())
    head = start[: re.search(r"[*\s]*\w+(?:\[\w+\])*$", start).start()]
    return [variable] + [parse_variable(head + " " + other.strip()) for other in others]


def parse_members(body):
    members, value = [], -1
    for match in re.finditer(r"(CGR_\w+)(?:\s*=\s*(-?\w+))?\s*(,?)(?:[ \t]*/\*(.*?)\*/)?", strip_other_comments(body), re.S):
        value = int(match[2], 0) if match[2] else value + 1
        members.append((match[1], value, plain(match[4] or "")))
    return members


def strip_other_comments(body):
    """Without the comments that stand on lines of their own."""
    return re.sub(r"^[ \t]*/\*.*?\*/[ \t]*$", "", body, flags=re.S | re.M)


TOP = re.compile(
    r"/\*(?P<comment>.*?)\*/"
    r"|typedef enum (?P<enum>\w+) \{(?P<members>.*?)\} \w+;"
    r"|enum \{(?P<nameless>.*?)\};"
    r"|typedef struct (?P<struct>\w+) \{(?P<fields>.*?)\n\} \w+;"
    r"|typedef (?P<callback>[^;{}]*\(\*\w+\)\([^;]*\));"
    r"|typedef struct \w+ \*?\w+;"
    r"|CGR_API (?P<function>[^;]+);",
    re.S,
)


def read_header(text, model):
    text, lists = expand_lists(text)
    for kind, _, struct, init in lists.get("CGR_STRUCT_LIST", ()):
        model.inits[struct] = kind
    text = without_preprocessor(text)
    doc, last_end = "", 0
    for match in TOP.finditer(text):
        if "\n\n" in text[last_end : match.start()]:
            doc = ""
        last_end = match.end()
        if match["comment"] is not None:
            doc = "" if "-----" in match["comment"] else plain(match["comment"])
        else:
            add_item(model, match, doc)


def add_item(model, match, doc):
    if match["enum"]:
        model.enums[match["enum"]] = Enum(match["enum"], parse_members(match["members"]), doc)
    elif match["nameless"]:
        for name, value, text in parse_members(match["nameless"]):
            model.constants[name] = (value, text or doc)
    elif match["struct"]:
        model.structs[match["struct"]] = Struct(match["struct"], parse_fields(match["fields"]), doc)
    elif match["callback"]:
        model.callbacks.add(re.search(r"\(\*(\w+)\)", match["callback"])[1])
    elif match["function"]:
        head, parameters = re.match(r"(.*?)\((.*)\)$", match["function"], re.S).groups()
        start = parse_variable(head)
        model.functions[start.name] = Function(start.name, start.type, parse_parameters(parameters), doc)


def read(include):
    """The model of all headers below `include`."""
    model = Model()
    texts = []
    for name in HEADERS:
        with open(os.path.join(include, "cgr", name + ".h"), encoding="utf-8") as file:
            texts.append(file.read())
    version = {part: int(re.search(rf"#define CGR_VERSION_{part} (\d+)", texts[0])[1]) for part in ("MAJOR", "MINOR", "PATCH")}
    number = version["MAJOR"] * 10000 + version["MINOR"] * 100 + version["PATCH"]
    for text in texts:
        read_header(text.replace("CGR_HEADER_VERSION = CGR_VERSION", f"CGR_HEADER_VERSION = {number}"), model)
    return model
