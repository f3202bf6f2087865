"""Where a C source can have one small mistake, and which. Reads code as .clang-format writes it: spaces around binary operators."""

import bisect
import collections
import re

TOKEN = re.compile(
    r"""(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<directive>^[ \t]*\#(?:\\.|[^\\\n])*)|(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')"""
    r"|(?P<number>\.?[0-9](?:[eEpP][+-]|[\w.])*)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>->|\+\+|--|<<=|>>=|<<|>>|&&|\|\||[-+*/%&|^<>=!]=|[^\s\w])", re.S | re.M)
Token = collections.namedtuple("Token", "kind text start end")
# name, whether it returns a cgr_status, and its tokens between the braces.
Function = collections.namedtuple("Function", "name is_status tokens start end")
# One change: the old text is at text[start:end].
Place = collections.namedtuple("Place", "kind function start end changes")

COMPARED = {"<": ["<=", ">="], "<=": ["<", ">"], ">": [">=", "<="], ">=": [">", "<"], "==": ["!="], "!=": ["=="]}
SWAPPED = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "&&": "||", "||": "&&",
           "+=": "-=", "-=": "+=", "|=": "&=", "&=": "|="}
ASSIGNING = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
KEYWORDS = {"return", "if", "else", "for", "while", "do", "switch", "case", "default", "goto", "break", "continue", "sizeof", "typedef",
            "struct", "union", "enum", "const", "static", "extern"}
PAIRS = {"(": ")", "[": "]", "{": "}"}


def tokens_of(text):
    tokens = [Token(m.lastgroup, m.group(), m.start(), m.end()) for m in TOKEN.finditer(text)]
    return [token for token in tokens if token.kind not in ("comment", "directive")]


def partners(tokens):
    """The place of the bracket that each opening one is closed by, and back."""
    found, open_ones = {}, []
    for i, token in enumerate(tokens):
        if token.text in PAIRS:
            open_ones.append(i)
        elif token.text in PAIRS.values() and open_ones:
            begin = open_ones.pop()
            found[begin], found[i] = i, begin
    return found


def functions_of(text):
    tokens = tokens_of(text)
    partner = partners(tokens)
    found, i = [], 0
    while i < len(tokens):
        end = partner.get(i) if tokens[i].text in PAIRS else None
        if end is not None and tokens[i].text == "{" and i > 0 and tokens[i - 1].text == ")":
            name = partner[i - 1] - 1
            is_status = name > 0 and tokens[name - 1].text == "cgr_status"
            found.append(Function(tokens[name].text, is_status, tokens[i + 1:end], tokens[i].start, tokens[end].end))
        i = end + 1 if end is not None else i + 1
    return found


class Body:
    """The tokens of a function, and what encloses each."""

    def __init__(self, text, function):
        self.text, self.function, self.tokens = text, function, function.tokens
        self.partner = partners(self.tokens)

    def is_binary(self, i):
        token = self.tokens[i]
        return self.text[token.start - 1] in " \n" and self.text[token.end] in " \n"

    def statement_end(self, i):
        """The semicolon of a statement that begins here, or None."""
        before = self.tokens[i - 1].text if i > 0 else "{"
        if before == ")":
            head = self.partner.get(i - 1, 0) - 1
            if head < 0 or self.tokens[head].text not in ("if", "for", "while"):
                return None
        elif before not in (";", "{", "}", "else"):
            return None
        while i < len(self.tokens) and self.tokens[i].text not in (";", ",", ")", "}"):
            i = self.partner.get(i, i) + 1
        return i if i < len(self.tokens) and self.tokens[i].text == ";" else None

    def place(self, kind, first, last, changes):
        return Place(kind, self.function.name, self.tokens[first].start, self.tokens[last].end, changes)


def comparisons(body, i):
    text = body.tokens[i].text
    if text in COMPARED and body.is_binary(i):
        yield body.place("compare", i, i, COMPARED[text])


def conditions(body, i):
    text = body.tokens[i].text
    close = body.partner.get(i + 1)
    if text in ("if", "while") and close:
        inner = body.text[body.tokens[i + 2].start:body.tokens[close - 1].end]
        yield body.place("condition", i + 2, close - 1, ["!(" + inner + ")", "0"] + (["1"] if text == "if" else []))


def operators(body, i):
    text = body.tokens[i].text
    if text in SWAPPED and body.is_binary(i):
        yield body.place("operator", i, i, [SWAPPED[text]])


def constants(body, i):
    token = body.tokens[i]
    if token.kind == "number":
        yield body.place("constant", i, i, ["(" + token.text + " + 1)", "(" + token.text + " - 1)"])


def is_declaration(tokens):
    """Of what is before the `=`: two names next to each other, or with stars between."""
    names = [token for token in tokens if token.text != "*"]
    return any(a.kind == b.kind == "name" for a, b in zip(names, names[1:]))


def statements(body, i):
    """Assignments and calls, to be left out."""
    token = body.tokens[i]
    if (token.kind != "name" and token.text != "*") or token.text in KEYWORDS:
        return
    end = body.statement_end(i)
    if end is None:
        return
    k = i
    while k < end and body.tokens[k].text not in ASSIGNING and body.tokens[k].text != "(":
        k = body.partner.get(k, k) + 1
    if body.tokens[k].text == "(" and body.partner.get(k) == end - 1 and not is_declaration(body.tokens[i:k]):
        yield body.place("call", i, end, [";"])
    elif body.tokens[k].text in ASSIGNING and not is_declaration(body.tokens[i:k]):
        yield body.place("assignment", i, end, [";"])


def statuses(body, i):
    if body.tokens[i].text == "return" and body.function.is_status:
        end = body.statement_end(i)
        if end and [token.text for token in body.tokens[i + 1:end]] != ["CGR_OK"]:
            yield body.place("status", i + 1, end - 1, ["CGR_OK"])


KINDS = (comparisons, conditions, operators, constants, statements, statuses)


def places_of(text):
    """In the order of the text."""
    return [place for function in functions_of(text) for body in (Body(text, function),)
            for i in range(len(body.tokens)) for kind in KINDS for place in kind(body, i)]


def line_starts(text):
    return [0] + [m.end() for m in re.finditer("\n", text)]


def remember(file, text, place, new):
    """A change as JSON has it: by the text of its line in its function, so that it is found when lines above have changed."""
    starts = line_starts(text)
    number = bisect.bisect_right(starts, place.start) - 1
    line = text[starts[number]:].split("\n", 1)[0]
    first = next(f.start for f in functions_of(text) if f.name == place.function and f.start <= place.start < f.end)
    earlier = text[first:starts[number]].split("\n") if first < starts[number] else []
    return {"file": file, "function": place.function, "line": number + 1, "kind": place.kind, "text": line, "nth": earlier.count(line),
            "column": place.start - starts[number], "old": text[place.start:place.end], "new": new}


def apply(text, change):
    """The text with the change, whose lines keep their numbers, or None: its place is gone."""
    for function in functions_of(text):
        if function.name != change["function"]:
            continue
        at, left = text.rfind("\n", 0, function.start) + 1, change["nth"]
        while at < function.end:
            line = text[at:].split("\n", 1)[0]
            if line == change["text"] and left == 0:
                return replace(text, at + change["column"], change)
            left -= line == change["text"]
            at += len(line) + 1
    return None


def replace(text, start, change):
    old, new = change["old"], change["new"]
    if not text.startswith(old, start):
        return None
    return text[:start] + new + "\n" * (old.count("\n") - new.count("\n")) + text[start + len(old):]
