#!/usr/bin/env python3
"""Ports C, C++ and CUDA sources from the interface of cgr 0.10 to that of 0.11 (docs/porting_0_11.md), in place:

    tools/port_0_11.py [--check] [--headers INCLUDE] FILE...

Renames functions and fields, rewrites calls whose parameters have changed, and adds the headers that cgr.h no longer includes. Give
all files of a program together: variables and fields of the types whose fields have moved are looked for in the file itself and in
all headers that are given. What it cannot decide is left as it is and reported as FILE:LINE; then the exit status is 1. --check changes nothing. INCLUDE is the folder with
cgr/ in it; by default that of this tree.

Reads C well enough for engines, not all of it: macros that hide calls are not expanded.
"""

import argparse
import os
import re
import sys

# Whole words with a new name: functions, macros, enumerators, fields that no other struct has.
WORDS = {
    "cgr_standing_put": "cgr_standing_add",
    "cgr_standing_set": "cgr_standing_update",
    "cgr_standing_take": "cgr_standing_remove",
    "CGR_DERIVED": "CGR_ON_DEMAND",
    "cgr_metadata_derived": "cgr_metadata_on_demand",
    "line_query_len": "decode_query_len",
    "line_tile_kv": "decode_tile_kv",
    "queue_tile_q": "prefill_tile_q",
    "queue_tile_kv": "prefill_tile_kv",
}

SKIPPED = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
HEADERS = ["inspect", "tracing", "names", "planners", "interop/block_table", "interop/fa3", "interop/flashinfer", "interop/flashmla"]

# Functions that returned a value and now write it through their last argument: a wrapper with the old shape.
WRAPPERS = {
    "cgr_runtime_completed": """static inline uint64_t port_runtime_completed(cgr_runtime *runtime) {
  uint64_t seq = 0;
  return cgr_runtime_completed(runtime, NULL, &seq) == CGR_OK ? seq : 0;
}
""",
    "cgr_runtime_flush": """static inline cgr_status port_runtime_flush(cgr_runtime *runtime, cudaStream_t stream, uint64_t *seq) {
  cgr_mark last = { 0, 0, 0 };
  cgr_status status = cgr_runtime_flush(runtime, NULL, &last, stream);
  if (seq)
    *seq = last.seq;
  return status;
}
""",
    "cgr_runtime_num_keys": """static inline int32_t port_runtime_num_keys(cgr_runtime *runtime) {
  int32_t count = 0;
  return cgr_runtime_num_keys(runtime, &count) == CGR_OK ? count : 0;
}
""",
    "cgr_runtime_device": """static inline cgr_device *port_runtime_device(cgr_runtime *runtime) {
  cgr_device *device = NULL;
  return cgr_runtime_device(runtime, &device) == CGR_OK ? device : NULL;
}
""",
    "cgr_runtime_graph_mode": """static inline cgr_graph_mode port_runtime_graph_mode(cgr_runtime *runtime, const char **reason) {
  cgr_graph_mode mode = CGR_MODE_NONE;
  if (reason)
    *reason = "";
  return cgr_runtime_graph_mode(runtime, &mode, reason) == CGR_OK ? mode : CGR_MODE_NONE;
}
""",
    "cgr_record_get_plan": """static inline cgr_status port_record_get_plan(cgr_recorder *recorder, cgr_plan_key *key, void **state) {
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  cgr_status status = cgr_record_get_info(recorder, &info);
  if (status != CGR_OK || !info.plan_key)
    return status == CGR_OK ? CGR_ERROR_STATE : status;
  *key = *info.plan_key;
  *state = info.plan_state;
  return CGR_OK;
}
""",
}


class Left(Exception):
    """A call that a person has to port."""


def masked(text):
    """The text with comments and literals blanked, so that places stay."""
    return SKIPPED.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def close_of(text, at):
    """The place of the parenthesis that closes the one at `at`, and those of the commas between arguments; in masked text."""
    depth, commas = 0, []
    for i in range(at, len(text)):
        if text[i] in "([{":
            depth += 1
        elif text[i] in ")]}":
            depth -= 1
            if depth == 0:
                return i, commas
        elif text[i] == "," and depth == 1:
            commas.append(i)
    return -1, []


def is_zero(argument):
    return argument in ("0", "0u", "0U")


class Port:
    def __init__(self, language, variables, wrap=True):
        self.cpp, self.variables, self.wrap = language == "c++", variables, wrap
        self.wrappers = set()

    def compound(self, kind, values):
        return ("%s{ %s }" if self.cpp else "(%s){ %s }") % (kind, ", ".join(values))

    def where(self, lane, program):
        if is_zero(lane) and is_zero(program):
            return "NULL"
        if self.cpp:
            raise Left("give a cgr_where { %s, %s }" % (lane, program))
        return "&(cgr_where){ %s, %s }" % (lane, program)

    def mark(self, lane, seq):
        """A step's own mark if it is the step's number, else one that is made."""
        field = re.match(r"(.*(?:\.|->))seq$", seq, re.S)
        if field and is_zero(lane) and self.has_mark(field.group(1)):
            return field.group(1) + "mark"
        last = re.match(r"(.*(?:\.|->))last_seq$", seq, re.S)
        if last and is_zero(lane) and self.is_of(last.group(1), "cgr_request_info"):
            return last.group(1) + "last"
        return self.compound("cgr_mark", [lane, "0", self.fields(seq)])

    def is_of(self, path, *types):
        """`path`: "step.", "e->steps[i].". Whether its last name is a variable or field of one of these types."""
        name = re.search(r"(\w+)\s*(?:\[[^][]*\]|\(\))*\s*\)*(?:\.|->)$", path)
        return bool(name) and any(name.group(1) in self.variables.get(t, ()) for t in types)

    def has_mark(self, path):
        return self.is_of(path, "cgr_step", "cgr_step_result")

    def fields(self, text):
        """Fields that have moved: seq and lane of steps and results, last_seq of a request."""
        bare, out, at = masked(text), [], 0
        for m in re.finditer(r"(\w+\s*(?:\[[^][]*\]|\(\))*\s*\)*(?:\.|->)|[{,]\s*\.)(seq|lane|last_seq|derived)\b", bare):
            path, name = m.group(1), m.group(2)
            if name in ("seq", "lane") and self.has_mark(path):
                new = "mark." + name
            elif name == "last_seq" and self.is_of(path, "cgr_request_info"):
                new = "last.seq"
            elif name == "derived" and (path[0] in "{," or self.is_of(path, "cgr_config", "cgr_backend", "cgr_metadata")):
                new = "on_demand"
            else:
                continue
            out.append(text[at:m.start(2)] + new)
            at = m.end(2)
        return "".join(out) + text[at:]

    # The calls that have changed: from the arguments of 0.10, the new name and arguments.

    def wrapped(self, name, kept):
        if not self.wrap:
            raise Left("returns a cgr_status and writes through a pointer")
        self.wrappers.add(name)
        return "port_" + name[len("cgr_"):], kept

    def call(self, name, a):
        if name in ("cgr_standing_put", "cgr_standing_set", "cgr_standing_take", "cgr_standing_swap", "cgr_standing_rows"):
            return WORDS.get(name, name), [a[0], self.where(a[1], a[2])] + a[3:]
        if name == "cgr_buffer_get":
            return name, [a[0], self.where(a[1], a[2])] + a[3:]
        if name == "cgr_buffer_get_declared":
            raise Left("is cgr_buffer_get(runtime, NULL, CGR_BUFFER_DECLARED, index in cgr_config.buffers, view)")
        if name == "cgr_step_wait":
            return name, [a[0], self.mark(a[1], a[2])] + a[3:]
        if name in ("cgr_runtime_timing", "cgr_runtime_trace_step"):
            if re.search(r"\bcgr_mark\b|\bmark$", a[1]):  # ported already
                return name, a
            return name, [a[0], self.mark("0", a[1])] + a[2:]
        if name == "cgr_runtime_flush":
            if a[3] not in ("NULL", "nullptr", "0"):
                if not self.wrap or not is_zero(a[1]):
                    raise Left("gives a cgr_mark: cgr_runtime_flush(runtime, where, &last, stream)")
                return self.wrapped(name, [a[0], a[2], a[3]])
            return name, [a[0], self.where(a[1], "0"), a[3], a[2]]
        if name == "cgr_runtime_completed":
            if not is_zero(a[1]):
                raise Left("takes a cgr_where, and writes through its last argument")
            return self.wrapped(name, a[:1])
        return self.wrapped(name, a)

    COUNTS = {"cgr_standing_put": 7, "cgr_standing_set": 7, "cgr_standing_take": 4, "cgr_standing_swap": 5, "cgr_standing_rows": 5,
              "cgr_buffer_get": 6, "cgr_buffer_get_declared": 4, "cgr_step_wait": 5, "cgr_runtime_timing": 5,
              "cgr_runtime_trace_step": 5, "cgr_runtime_flush": 4, "cgr_runtime_completed": 2, "cgr_runtime_num_keys": 1,
              "cgr_runtime_device": 1, "cgr_runtime_graph_mode": 2, "cgr_record_get_plan": 3}
    CALL = re.compile(r"\b(%s)\s*\(" % "|".join(COUNTS))

    def calls(self, text, left, line=1):
        """The text with its calls rewritten, also those within arguments. `left`: (line, what)."""
        bare, out, at = masked(text), [], 0
        for m in self.CALL.finditer(bare):
            if m.start() < at:
                continue
            end, commas = close_of(bare, m.end() - 1)
            here = line + text.count("\n", 0, m.start())
            if end < 0:
                continue
            ends = [m.end() - 1] + commas + [end]
            arguments = [text[x + 1:y].strip() for x, y in zip(ends, ends[1:])]
            if len(arguments) != self.COUNTS[m.group(1)]:
                left.append((here, "%s has %d arguments, expected the %d of 0.10: ported already?"
                             % (m.group(1), len(arguments), self.COUNTS[m.group(1)])))
                continue
            arguments = [self.calls(argument, left, here) for argument in arguments]
            try:
                name, arguments = self.call(m.group(1), arguments)
            except Left as why:
                left.append((here, "%s %s" % (m.group(1), why)))
                continue
            out.append(text[at:m.start()] + name + "(" + ", ".join(arguments) + ")")
            at = end + 1
        return "".join(out) + text[at:]

    def words(self, text):
        bare, out, at = masked(text), [], 0
        for m in re.finditer(r"\b\w+\b", bare):
            if m.group(0) in WORDS:
                out.append(text[at:m.start()] + WORDS[m.group(0)])
                at = m.end()
        return "".join(out) + text[at:]

    def text(self, text, homes):
        left = []
        text = self.words(self.fields(self.calls(text, left)))
        return with_includes(self.with_wrappers(text), homes), left

    def with_wrappers(self, text):
        last = None
        for last in re.finditer(r"^[ \t]*#[ \t]*include\b[^\n]*\n", text, re.M):
            pass
        if not self.wrappers or not last:
            return text
        added = "".join("\n/* As in cgr 0.10. */\n" + WRAPPERS[name] for name in sorted(self.wrappers))
        return text[:last.end()] + added + text[last.end():]


MOVED = ("cgr_step", "cgr_step_result", "cgr_request_info", "cgr_config", "cgr_backend", "cgr_metadata")
DECLARATOR = re.compile(r"[&*\s]*(?:const\b)?[&*\s]*(\w+)\s*(?:\[[^][]*\]\s*)*(?:=|$)")


def find_variables(texts):
    """The names of variables, parameters and fields of the types whose fields have moved or have another name. In a list of
    parameters the next type ends what belongs to one."""
    found = {}
    for text in texts:
        bare = masked(text)
        for kind in MOVED:
            for m in re.finditer(r"\b%s\b\s*([&*\s]*\w+[^;(){}]*)" % kind, bare):
                for part in m.group(1).split(","):
                    name = DECLARATOR.match(part.strip())
                    if not name:
                        break
                    found.setdefault(kind, set()).add(name.group(1))
    return found


def find_homes(include):
    """Which header apart from cgr.h declares what."""
    homes = {}
    for header in HEADERS:
        path = os.path.join(include, "cgr", header + ".h")
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as file:
            bare = masked(re.sub(r"^#(?!define CGR_\w+[ (]).*$", "", file.read(), flags=re.M))
        declared = re.findall(r"CGR_API[^;(]*?\b(cgr_\w+)\(", bare) + re.findall(r"^\} (cgr_\w+);", bare, re.M)
        for body in re.findall(r"\benum(?: cgr_\w+)? \{(.*?)\}", bare, re.S):
            declared += re.findall(r"\bCGR_\w+", body)
        declared += re.findall(r"^typedef enum (cgr_\w+) ", bare, re.M) + re.findall(r"^#define (CGR_\w+)", bare, re.M)
        for name in declared:
            homes.setdefault(name, header)
    return {name: header for name, header in homes.items() if not re.fullmatch(r"CGR_(INTEROP_)?[A-Z0-9_]+_H|CGR_API", name)}


def with_includes(text, homes):
    """Adds the headers that cgr.h no longer includes, after it. Those that have become apart replace planners.h where that was."""
    first = re.search(r"^([ \t]*#[ \t]*include[ \t]*)([<\"])cgr/(\w+)\.h([>\"])[^\n]*\n", text, re.M)
    wanted = {homes[word] for word in re.findall(r"\b\w+\b", masked(text)) if word in homes}
    there = set(re.findall(r"#[ \t]*include[ \t]*[<\"]cgr/([\w/]+)\.h", text))
    new = [h for h in HEADERS if h in wanted - there]
    if not new:
        return text
    open_, close = (first.group(2), first.group(4)) if first else ("<", ">")
    lines = "".join("#include %scgr/%s.h%s\n" % (open_, h, close) for h in new)
    if first:
        return text[:first.end()] + lines + text[first.end():]
    other = re.search(r"^[ \t]*#[ \t]*include\b", text, re.M)
    at = other.start() if other else 0
    return text[:at] + lines + text[at:]


def port(path, text, variables, homes, wrap=True):
    c = path.endswith(".c") or (path.endswith(".h") and not re.search(r"\b(namespace|template|class|std)\b", masked(text)))
    language = "c" if c else "c++"
    return Port(language, variables, wrap).text(text, homes)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--headers", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "include"))
    parser.add_argument("--no-wrappers", action="store_true", help="report calls that would need a wrapper instead")
    parser.add_argument("files", nargs="+")
    given = parser.parse_args(arguments)
    homes = find_homes(given.headers)
    if not homes:
        sys.exit("no headers of cgr 0.11 below " + given.headers)
    texts = {}
    for path in given.files:
        with open(path, encoding="utf-8") as file:
            texts[path] = file.read()
    shared, count = [text for path, text in texts.items() if path.endswith((".h", ".hpp", ".cuh"))], 0
    for path, text in texts.items():
        variables = find_variables(shared + [text])
        new, left = port(path, text, variables, homes, not given.no_wrappers)
        count += len(left)
        for line, what in left:
            print("%s:%d: %s" % (path, line, what))
        if new != text and not given.check:
            with open(path, "w", encoding="utf-8") as file:
                file.write(new)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
