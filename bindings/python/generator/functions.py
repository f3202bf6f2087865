"""Writes functions.c: a wrapper for each function of C that rules.py does not give to src/, and the tables of all methods."""

import re
from dataclasses import dataclass, field

from . import rules
from .model import BYTES, NUMBERS
from .tables import HEAD, bound_structs, c_text, default_of, split_arguments

HANDLES = {"cgr_device": "DEVICE", "cgr_runtime": "RUNTIME", "cgr_recorder": "RECORDER", "cgr_event": "EVENT"}
SCALARS = {
    "int32_t": ("cgrpy_i32", "PyLong_FromLong({0})", "int"),
    "int": ("cgrpy_i32", "PyLong_FromLong({0})", "int"),
    "uint32_t": ("cgrpy_u32", "PyLong_FromUnsignedLong({0})", "int"),
    "uint64_t": ("cgrpy_u64", "PyLong_FromUnsignedLongLong({0})", "int"),
    "size_t": ("cgrpy_u64", "PyLong_FromSize_t({0})", "int"),
    "double": ("cgrpy_double", "PyFloat_FromDouble({0})", "float"),
}


@dataclass
class Wrapper:
    """What a wrapper is made of, in the order of its code."""

    function: object
    owner: str = ""
    arguments: list = field(default_factory=list)  # (name, hint, default or None)
    declared: list = field(default_factory=list)
    read: list = field(default_factory=list)  # conditions that may run Python
    opened: list = field(default_factory=list)  # conditions that do not: handles and checks
    passed: list = field(default_factory=list)  # to the function of C
    outputs: list = field(default_factory=list)  # (expression of a new reference, hint)
    ended: list = field(default_factory=list)
    handles: list = field(default_factory=list)
    text: bool = False
    findings: bool = False


def releases(function):
    """Whether a call may wait, and so goes on without the GIL."""
    sync = re.search(r"Sync ([^·]*)", function.doc)
    return bool(sync) and sync[1].strip() in ("may", "poll never, wait may")


def any_thread(function):
    return "Threads any" in function.doc


class Builder:
    def __init__(self, model, function):
        self.model, self.function = model, function
        self.names = {s.name for s in bound_structs(model)}
        name = rules.python_name(function)
        self.w = Wrapper(function, owner=name.split(".")[0] if "." in name else "")
        parameters = list(function.parameters)
        if self.w.owner:
            self.owner_handle(parameters.pop(0))
        while parameters:
            parameters = parameters[self.take(parameters) :]

    # Each returns how many parameters it has taken.

    def take(self, ps):
        kinds = [(p.type.base, p.type.stars, p.type.const) for p in ps[:3]]
        if [p.name for p in ps[:3]] == ["out", "capacity", "length"]:
            self.w.text = True
            return 3
        if kinds[0][:2] == ("cgr_finding", 1):
            return self.findings()
        if len(ps) >= 2 and ps[1].name == "capacity" and kinds[0][0] in self.names and not kinds[0][2]:
            return self.records(ps)
        if kinds[0][0] in self.names:
            return self.struct(ps)
        if kinds[0][0] in self.model.enums and kinds[0][1] == 0:
            return self.enum(ps[0])
        if kinds[0][0] == "cudaStream_t":
            return self.stream()
        if kinds[0][1] == 0:
            return self.scalar(ps[0])
        return self.pointer(ps)

    def owner_handle(self, p):
        kind, opener = HANDLES[p.type.base], "cgrpy_open_any" if any_thread(self.function) else "cgrpy_open"
        self.w.declared.append(f"cgrpy_handle *{p.name} = NULL;")
        self.w.opened.append(f'({p.name} = {opener}(self, CGRPY_HANDLE_{kind}, "{p.name}")) != NULL')
        self.w.passed.append(f"{p.name}->pointer")
        self.w.handles.append(p.name)

    def argument(self, name, hint, default=None):
        self.w.arguments.append((name, hint, default))
        return f"a[{len(self.w.arguments) - 1}]"

    def struct(self, ps):
        p = ps[0]
        name, index = rules.class_name(p.type.base), f"cgrpy_type_{p.type.base[4:]}"
        if p.type.base == "cgr_mark":
            if p.type.stars:
                return self.new_struct(p, name, index)
            at = self.argument(p.name, "Mark | Step | StepResult")
            self.w.declared.append(f"cgr_mark {p.name};")
            self.w.read.append(f"cgrpy_mark({at}, &{p.name})")
            self.w.passed.append(p.name)
            return 1
        if not p.type.const:
            return self.new_struct(p, name, index)
        if len(ps) > 1 and ps[1].name == f"num_{p.name}":
            return self.struct_array(p, name, index)
        return self.given_struct(p, name, index)

    def given_struct(self, p, name, index):
        optional = p.type.base == "cgr_where"
        at = self.argument(p.name, f"{name} | None" if optional else name, "None" if optional else None)
        self.w.declared.append(f"cgrpy_object *{p.name} = NULL;")
        self.w.read.append(f'cgrpy_is({at}, {index}, {str(optional).lower()}, "{p.name}", &{p.name})')
        function = self.function.name
        host = function.endswith(("_build", "_split")) or p.type.base == "cgr_batch"
        if self.function.name == "cgr_metadata_build":
            self.w.opened.append("cgrpy_check_metadata(metadata)")
        self.w.opened.append(f"cgrpy_check_host({p.name})" if host else f"cgrpy_check_on({self.on_host(p)}, {p.name})")
        if self.function.name == "cgr_gather_build":
            self.w.opened.append("cgrpy_check_gather(gather)")
        if self.function.name == "cgr_record_attention":
            self.w.opened.append("cgrpy_check_attention(recorder, attention)")
        if releases(self.function):
            self.w.declared.append(f"PyObject *{p.name}_copy = NULL;")
            self.w.opened.append(f"({p.name}_copy = cgrpy_copy((PyObject *){p.name})) != NULL")
            self.w.passed.append(f"(void *)((cgrpy_object *){p.name}_copy)->data")
            self.w.ended.append(f"Py_XDECREF({p.name}_copy);")
        else:
            self.w.passed.append(f"cgrpy_fields({p.name})")
        return 1

    def on_host(self, p):
        """Whether the memory that a struct points to has to be the host's."""
        if self.function.name in rules.READ_ON_HOST:
            condition = rules.READ_ON_HOST[self.function.name].replace("s->", f"(({p.type.base} *){p.name}->data)->")
            return f"({condition})"
        return f"{self.w.handles[0]}->on_host" if self.w.handles else "false"

    def struct_array(self, p, name, index):
        at = self.argument(p.name, f"Sequence[{name}]", "()")
        self.w.declared.append(f"PyObject *{p.name} = NULL;")
        self.w.read.append(f'({p.name} = {at} ? cgrpy_array_of({at}, {index}, "{p.name}") : cgrpy_new_array({index}, 0, NULL)) != NULL')
        self.w.passed += [f"cgrpy_fields((cgrpy_object *){p.name})", f"(int32_t)((cgrpy_object *){p.name})->count"]
        self.w.ended.append(f"Py_XDECREF({p.name});")
        return 2

    def new_struct(self, p, name, index):
        runtime = {"Runtime": "self", "Recorder": "(PyObject *)recorder->parent"}.get(self.w.owner, "NULL")
        if p.type.base not in ("cgr_buffer_view",):
            runtime = "NULL"
        self.w.declared.append(f"PyObject *{p.name} = NULL;")
        self.w.opened.append(f"({p.name} = cgrpy_new({index}, {runtime})) != NULL")
        self.w.passed.append(f"cgrpy_fields((cgrpy_object *){p.name})")
        self.w.outputs.append((f"Py_XNewRef({p.name})", name))
        self.w.ended.append(f"Py_XDECREF({p.name});")
        return 1

    def enum(self, p):
        at = self.argument(p.name, f"{rules.class_name(p.type.base)} | int")
        self.w.declared.append(f"int32_t {p.name} = 0;")
        self.w.read.append(f'cgrpy_i32({at}, "{p.name}", &{p.name})')
        self.w.passed.append(f"({p.type.base}){p.name}")
        return 1

    def stream(self):
        at = self.argument("stream", "Any")
        self.w.declared.append("cgrpy_stream stream = { NULL, NULL };")
        self.w.read.append(f"cgrpy_to_stream({at}, &stream)")
        self.w.opened.append("cgrpy_still_open(&stream)")
        self.w.passed.append("stream.stream")
        self.w.handles.append("stream.handle")
        return 1

    def scalar(self, p):
        reader, _, hint = SCALARS[p.type.base]
        base = "uint64_t" if p.type.base == "size_t" else "int32_t" if p.type.base == "int" else p.type.base
        at = self.argument(p.name, hint, rules.DEFAULTS.get((self.function.name, p.name)))
        self.w.declared.append(f"{base} {p.name} = 0;")
        self.w.read.append(f'{reader}({at}, "{p.name}", &{p.name})')
        self.w.passed.append(p.name)
        return 1

    def pointer(self, ps):
        p = ps[0]
        if p.type.base == "char" and p.type.stars == 2:
            return self.out_text(p)
        if p.type.stars == 2:
            return self.out_array(ps)
        if p.type.base in SCALARS and not p.type.const:
            return self.out_scalar(p)
        if p.type.base in self.model.enums:
            return self.out_enum(p)
        return self.data(ps)

    def out_scalar(self, p):
        self.w.declared.append(f"{p.type.base} {p.name} = 0;")
        self.w.passed.append(f"&{p.name}")
        self.w.outputs.append((SCALARS[p.type.base][1].format(p.name), SCALARS[p.type.base][2]))
        return 1

    def out_enum(self, p):
        index = [e for e in self.model.enums].index(p.type.base)
        self.w.declared.append(f"{p.type.base} {p.name} = 0;")
        self.w.passed.append(f"&{p.name}")
        self.w.outputs.append((f"cgrpy_member({index}, (long long){p.name})", rules.class_name(p.type.base)))
        return 1

    def out_text(self, p):
        self.w.declared.append(f'const char *{p.name} = "";')
        self.w.passed.append(f"&{p.name}")
        self.w.outputs.append((f"PyUnicode_FromString({p.name})", "str"))
        return 1

    def out_array(self, ps):
        p = ps[0]
        self.w.declared += [f"const int32_t *{p.name} = NULL;", "int32_t count = 0;"]
        self.w.passed += [f"&{p.name}", "&count"]
        self.w.outputs.append((f"cgrpy_view(NULL, {p.name}, 'i', 4, (int64_t[]){{ count }}, 1)", "memoryview"))
        return 2

    def data(self, ps):
        p = ps[0]
        size, numbers = BYTES.get(p.type.base, 1), NUMBERS.get(p.type.base, "ANY")
        counted = len(ps) > 1 and ps[1].name in ("count", "bytes", "int_bytes", "plan_size", p.name + "_size")
        optional = (self.function.name, p.name) in rules.ARGUMENT_LENGTHS
        at = self.argument(p.name, "Any", "None" if optional else None)
        writable = str(not p.type.const and numbers == "ANY" and counted).lower()
        self.w.declared.append(f"cgrpy_data {p.name} = {{ 0 }};")
        self.w.read.append(f'cgrpy_to_data({at}, CGRPY_{numbers}, {size}, {writable}, "{p.name}", &{p.name})')
        self.w.passed.append(f"{p.name}.pointer")
        self.w.ended.append(f"cgrpy_data_end(&{p.name});")
        if (self.function.name, p.name) in rules.ARGUMENT_LENGTHS:
            length = rules.ARGUMENT_LENGTHS[self.function.name, p.name]
            holds = f'cgrpy_holds_on_host(&{p.name}, 0, {size}, "{p.name}") && cgrpy_holds_all(&{p.name}, {length}, {size}, "{p.name}")'
            self.w.opened.append(f"(!cgrpy_given(&{p.name}) || ({holds}))")  # the library says what NULL means
        elif self.function.name.endswith("_build") or self.function.name == "cgr_request_set_pages":
            self.w.opened.append(f'cgrpy_holds_on_host(&{p.name}, 0, {size}, "{p.name}")')
        elif self.w.handles and not optional:
            self.w.opened.append(f'(!{self.w.handles[0]}->on_host || cgrpy_holds_on_host(&{p.name}, 0, {size}, "{p.name}"))')
        if "view_make" in self.function.name:
            self.w.opened.append(f'cgrpy_fits(&{p.name}, dtype, "{p.name}")')
        if self.function.name == "cgr_copy":
            self.w.opened.append(f'cgrpy_holds(&{p.name}, (int64_t)bytes, 1, "{p.name}")')
        if self.function.name == "cgr_fill":
            self.w.opened.append(f'cgrpy_holds(&{p.name}, (int64_t)bytes, 1, "{p.name}")')
        if not counted or self.function.name in ("cgr_copy", "cgr_fill"):
            return 1
        return self.counted(p, ps[1], size)

    def counted(self, p, count, size):
        """The number of bytes or elements follows from the array, and has to be given for an address alone."""
        at = self.argument(count.name, "int | None", "None")
        ctype = count.type.base
        self.w.declared.append(f"uint64_t {count.name} = 0;")
        self.w.read.append(f'cgrpy_count({at}, &{p.name}, {size}, "{count.name}", &{count.name})')
        self.w.passed.append(f"({ctype}){count.name}")
        return 2

    def findings(self):
        self.w.findings = True
        self.w.declared += ["cgr_finding *findings = NULL;", "int32_t count = 0;"]
        self.w.opened.append("(findings = PyMem_Calloc(CGRPY_FINDINGS, sizeof *findings)) != NULL")
        self.w.passed += ["findings", "CGRPY_FINDINGS", "&count"]
        self.w.ended.append("PyMem_Free(findings);")
        return 3

    def records(self, ps):
        """Arrays that cgr fills: first their number, then as many."""
        p = ps[0]
        index, name = f"cgrpy_type_{p.type.base[4:]}", rules.class_name(p.type.base)
        self.w.declared += [f"PyObject *{p.name} = NULL;", "int32_t capacity = 0;"]
        self.w.opened.append(f"({p.name} = cgrpy_new_array({index}, capacity, NULL)) != NULL")
        self.w.passed += [f"capacity ? cgrpy_fields((cgrpy_object *){p.name}) : NULL", "capacity"]
        self.w.outputs.append((f"cgrpy_list({p.name})", f"list[{name}]"))
        self.w.ended.append(f"Py_XDECREF({p.name});")
        if ps[2].name == "count":
            self.w.declared.append("int32_t count = 0;")
            self.w.passed.append("&count")
            return 3
        return 2


def place_of(argument):
    """Those without a default first; `where`, which seldom has another value than its default, last."""
    name, _, default = argument
    return (default is not None) + (name == "where")


def hints(w):
    """The arguments and the result in stubs."""
    ordered = sorted(w.arguments, key=place_of)
    arguments = ", ".join(f"{n}: {h}" + (f" = {d}" if d is not None else "") for n, h, d in ordered)
    return arguments, returned(w)


def returned(w):
    outs = [hint for _, hint in w.outputs]
    if w.text:
        return "str"
    if w.function.returns.stars:
        return "str"
    if w.function.returns.base in SCALARS:
        return SCALARS[w.function.returns.base][2]
    if w.findings and not outs:
        return "None"
    return "None" if not outs else outs[0] if len(outs) == 1 else f"tuple[{', '.join(outs)}]"


def call(w):
    return f"{w.function.name}({', '.join(w.passed)})"


def reordered(w):
    """Required arguments first; the a[] of the code follow."""
    order = sorted(range(len(w.arguments)), key=lambda i: place_of(w.arguments[i]))
    place = {old: new for new, old in enumerate(order)}
    w.read = [re.sub(r"\ba\[(\d+)\]", lambda m: f"a[{place[int(m[1])]}]", line) for line in w.read]
    w.arguments = [w.arguments[i] for i in order]


def with_default(w, line):
    """An argument that is not given keeps its variable as it is."""
    match = re.search(r"\ba\[(\d+)\]", line)
    optional = match and w.arguments[int(match[1])][2] not in (None, "None", "()")
    return f"(!a[{match[1]}] || {line})" if optional else line


def result_code(w):
    if w.function.returns.stars:
        return [f"result = PyUnicode_FromString({call(w)});"]
    if w.function.returns.base in SCALARS:
        return ["result = " + SCALARS[w.function.returns.base][1].format(call(w)) + ";"]
    return status_code(w)


def status_code(w):
    release = releases(w.function)
    handles = [h for h in w.handles] + ["NULL", "NULL"]
    lines = ["cgrpy_forget_pending();"]
    if release:
        lines += ["cgrpy_call call;", f"cgrpy_release_gil(&call, {handles[0]}, {handles[1]});"]
    lines.append(f"const cgr_status status = {call(w)};")
    if release:
        lines.append("cgrpy_take_gil(&call);")
    failed = "status != CGR_OK"
    lines.append(f"if ({failed})")
    lines.append("  result = cgrpy_raise_with(status, findings, count);" if w.findings else "  result = cgrpy_raise(status);")
    return lines + ["else", "  result = " + built(w) + ";"]


def kept(w):
    """What the device reads later, when the stream gets there."""
    checked = (re.match(r"cgrpy_check(?:_host|_on)?\((?:.*, )?(\w+)\)$", c) for c in w.opened)
    structs = [f"cgrpy_copy_whole((PyObject *){m[1]})" for m in checked if m]
    return structs + [f"cgrpy_hold(&{m[1]})" for m in (re.match(r"cgrpy_data_end\(&(\w+)\);", e) for e in w.ended) if m]


def built(w):
    exprs = [e for e, _ in w.outputs]
    if not exprs and w.owner == "Device" and "stream.stream" in w.passed and kept(w):
        items = kept(w)
        return f"cgrpy_keep_until(device, stream.stream, (PyObject *[]){{ {', '.join(items)} }}, {len(items)})"
    if not exprs and w.owner == "Recorder" and kept(w):
        return f"cgrpy_keep_recorded(recorder, {kept(w)[0]})"
    if not exprs:
        return "Py_NewRef(Py_None)"
    if "view_make" in w.function.name:
        memory = next(m[1] for m in (re.match(r"cgrpy_data_end\(&(\w+)\);", e) for e in w.ended) if m)
        views = ", ".join(re.match(r"Py_XNewRef\((\w+)\)", e)[1] for e in exprs)
        return f"cgrpy_keep_in((PyObject *[]){{ {views} }}, {len(exprs)}, &{memory})"
    if len(exprs) == 1:
        return exprs[0]
    return f'Py_BuildValue("{"N" * len(exprs)}", {", ".join(exprs)})'


def wrapper_code(w):
    reordered(w)
    name = rules.python_name(w.function).split(".")[-1]
    required = sum(d is None for _, _, d in w.arguments)
    count = max(1, len(w.arguments))
    names = ", ".join([f'"{n}"' for n, _, _ in w.arguments] + ["NULL"])
    out = [f"static PyObject *py_{w.function.name[4:]}(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {{"]
    out.append(f"  static const char *const names[] = {{ {names} }};")
    out += [f"  PyObject *a[{count}], *result = NULL;", "  (void)self;"] + [f"  {d}" for d in w.declared]
    conditions = [f'cgrpy_arguments("{name}", names, {required}, args, nargs, keywords, a)']
    conditions += [with_default(w, line) for line in w.read] + w.opened
    out.append("  if (" + " &&\n      ".join(conditions) + ") {")
    out += [f"    {line}" for line in result_code(w)] + ["  }"]
    return "\n".join(out + [f"  {e}" for e in w.ended] + ["  return result;", "}", ""])


TEXT = """typedef struct text_{n} {{
{fields}
}} text_{n};

static cgr_status write_{n}(void *context, char *out, size_t capacity, size_t *length) {{
  const text_{n} *c = context;
  return {f}({passed}, out, capacity, length);
}}
"""


def text_code(w):
    """A function that writes a text: its other arguments travel in a struct."""
    n, fields, passed, values = w.function.name[4:], [], [], []
    for i, (p, value) in enumerate(zip(w.function.parameters, w.passed)):
        ctype = f"{'const ' if p.type.const else ''}{p.type.base} {'*' * p.type.stars}"
        fields.append(f"  {ctype}{p.name};")
        passed.append(f"c->{p.name}")
        values.append(value)
    before = TEXT.format(n=n, fields="\n".join(fields), f=w.function.name, passed=", ".join(passed))
    code = wrapper_code_of_text(w, f"    text_{n} context = {{ {', '.join(values)} }};\n    result = cgrpy_text(write_{n}, &context);")
    return before + "\n" + code


def wrapper_code_of_text(w, body):
    code = wrapper_code(w)
    start = code.index(") {", code.index("if (")) + 4
    end = code.index("\n  }\n", start)
    return code[:start] + body + code[end:]


def records_code(w):
    """Asks for the number first."""
    code = wrapper_code(w)
    array = next(e for e in w.opened if "cgrpy_new_array" in e)
    name = array[1:].split(" ")[0]
    count = f"{w.function.name}({', '.join('NULL' if 'cgrpy_fields' in x and name in x else x for x in w.passed)})"
    if w.function.name == "cgr_runtime_advise_keys":
        ask = "cgr_runtime_num_keys(runtime->pointer, &capacity)"
        return code.replace(array, f"cgrpy_succeeded({ask}) && {array}").replace(
            "cgrpy_list(keys)", "cgrpy_first_keys(keys, advice)"
        )
    return code.replace(array, f"cgrpy_succeeded({count}) && (capacity = count, true) && {array}").replace(
        f"cgrpy_list({name})", f"cgrpy_first({name}, count)"
    )


def code_of(model, function):
    w = Builder(model, function).w
    if w.text:
        return w, text_code(w)
    if any("cgrpy_new_array" in e and "capacity" in e for e in w.opened):
        return w, records_code(w)
    return w, wrapper_code(w)


def signature(model, function):
    """(arguments, result) as in stubs."""
    if function.name in rules.SIGNATURES:
        return rules.SIGNATURES[function.name]
    return hints(Builder(model, function).w)


def doc_of(model, function):
    arguments, _ = signature(model, function)
    owner, _, name = rules.python_name(function).rpartition(".")
    plain = ", ".join(p.split(":")[0] + default_of(p) for p in split_arguments(arguments))
    first = "$self, /, " if owner else "$module, /, "
    return f"{name}({(first + plain).rstrip(', /') if not plain else first + plain})\n--\n\n{function.doc}"


def emit(model):
    out = [HEAD + '#include "core.h"\n#include "generated_help.h"\n']
    tables = {"": [], "Device": [], "Runtime": [], "Recorder": []}
    for function in model.functions.values():
        if function.name in rules.LEFT_OUT or rules.BY_HAND.get(function.name, ("", ""))[1] is None:
            continue
        target = rules.BY_HAND.get(function.name, ("", ""))[1]
        if not target:
            out.append(code_of(model, function)[1])
            target = f"py_{function.name[4:]}"
        owner, _, name = rules.python_name(function).rpartition(".")
        doc = c_text(doc_of(model, function))
        tables[owner].append(f'  {{ "{name}", (PyCFunction)(void (*)(void)){target}, METH_FASTCALL | METH_KEYWORDS, {doc} }},')
    for owner, rows in tables.items():
        symbol = f"cgrpy_{owner.lower()}_methods" if owner else "cgrpy_functions"
        out.append(f"PyMethodDef {symbol}[] = {{\n" + "\n".join(rows) + "\n  { NULL, NULL, 0, NULL },\n};\n")
    return "\n".join(out)
