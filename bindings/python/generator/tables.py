"""Writes generated.h and tables.c: what the structs and enums are, for src/."""

from . import model as models
from . import rules

HEAD = "/* Generated from cgr's headers. */\n"

DOCS = (
    "device_open stream_create stream_synchronize event_create event_record event_wait memory_alloc runtime_create runtime_device"
).split()


def c_text(text):
    """A C string of several lines."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return "\n    ".join(f'"{line}\\n"' for line in escaped.split("\n")[:-1]) + f' "{escaped.split(chr(10))[-1]}"'


def bound_structs(model):
    return [s for s in model.structs.values() if s.name not in rules.LEFT_OUT_STRUCTS]


def bound_enums(model):
    return list(model.enums.values())


def header(model):
    out = [HEAD + "#ifndef CGR_BINDINGS_PYTHON_GENERATED_H", "#define CGR_BINDINGS_PYTHON_GENERATED_H", "", "enum {"]
    out += [f"  cgrpy_type_{s.name[4:]} = {i}," for i, s in enumerate(bound_structs(model))]
    out += ["};", ""]
    for name in DOCS:
        text = c_text(model.functions["cgr_" + name].doc).replace("\n", " \\\n")
        out.append(f"#define CGRPY_DOC_{name.upper()} \\\n    {text}")
    return "\n".join(out + ["", "#endif", ""])


LENGTH_HELPERS = """
static int64_t sum_of(const int32_t *counts, int32_t number) {
  int64_t sum = 0;
  if (counts == NULL)
    return number;
  for (int32_t i = 0; i < number; i++) {
    if (counts[i] < 0)
      return -1; /* cgr refuses it */
    sum += counts[i];
  }
  return sum;
}

static int64_t last_of(const int32_t *sums, int32_t number) { return sums == NULL || number < 0 ? 0 : sums[number]; }
"""


def length_function(struct, field):
    return (
        f"static int64_t length_{struct.name[4:]}_{field.name}(const void *fields) {{\n"
        f"  const {struct.name} *s = fields;\n  (void)s;\n  return {field.length};\n}}\n"
    )


def field_row(model, enums, struct, field, keep):
    kind = f"CGRPY_{field.kind}"
    size = field.bytes
    dims = ", ".join((*field.dims, "0", "0")[:2])
    enum = enums.index(field.enum) if field.enum else -1
    count = f"1 + offsetof({struct.name}, {field.count})" if field.count else "0"
    length = f"length_{struct.name[4:]}_{field.name}" if field.length else "NULL"
    flags = f"{str(field.writable).lower()}, {str(field.host).lower()}, {str(field.address).lower()}, {str(field.strided).lower()}"
    return (
        f'  {{ "{field.name}", {kind}, offsetof({struct.name}, {field.name}), {size}, {{ {dims} }}, {field.type}, {keep}, {enum}, '
        f"{flags}, {count}, {length},\n    {c_text(field.doc)} }},"
    )


def struct_table(model, enums, struct):
    fields, keep, out = models.fields_of(model, struct), 0, []
    out += [length_function(struct, f) for f in fields if f.length]
    out.append(f"static const cgrpy_field fields_{struct.name[4:]}[] = {{")
    for field in fields:
        out.append(field_row(model, enums, struct, field, keep if field.keeps else -1))
        keep += field.keeps
    out.append('  { NULL, CGRPY_INT, 0, 0, { 0, 0 }, 0, -1, -1, false, false, false, false, 0, NULL, NULL },\n};\n')
    out.append(struct_methods(model, struct))
    return "\n".join(out), len(fields), keep


def struct_methods(model, struct):
    methods = rules.STRUCT_METHODS.get(struct.name)
    if not methods:
        return ""
    rows = []
    for name, function, flags, signature, _, source in methods:
        arguments = ", ".join(part.split(":")[0] + default_of(part) for part in split_arguments(signature))
        doc = f"{name}($self, /{', ' + arguments if arguments else ''})\n--\n\n{model.functions[source].doc}"
        rows.append(f'  {{ "{name}", (PyCFunction)(void (*)(void)){function}, {flags}, {c_text(doc)} }},')
    return (
        f"static PyMethodDef methods_{struct.name[4:]}[] = {{\n" + "\n".join(rows) + "\n  { NULL, NULL, 0, NULL },\n};\n"
    )


def split_arguments(signature):
    """By the commas that are not inside brackets."""
    parts, depth = [""], 0
    for letter in signature:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def default_of(part):
    return "=" + part.rsplit("=", 1)[1].strip() if "=" in part else ""


def struct_doc(struct):
    return f"{rules.class_name(struct.name)}(**fields)\n--\n\n{struct.doc or struct.name + '.'}"


def tables(model):
    structs, enums = bound_structs(model), [e.name for e in bound_enums(model)]
    out = [HEAD + '#include "core.h"\n' + LENGTH_HELPERS]
    rows = []
    for struct in structs:
        text, num_fields, num_keeps = struct_table(model, enums, struct)
        out.append(text)
        init = model.inits.get(struct.name, "CGR_STRUCT_KEY" if struct.name == "cgr_key" else "-1")
        methods = f"methods_{struct.name[4:]}" if struct.name in rules.STRUCT_METHODS else "NULL"
        rows.append(
            f'  {{ "cgr.{rules.class_name(struct.name)}", {c_text(struct_doc(struct))}, (uint32_t)sizeof({struct.name}), {init}, '
            f"{num_fields}, {num_keeps}, fields_{struct.name[4:]}, {methods} }},"
        )
    out.append("const cgrpy_struct cgrpy_structs[] = {\n" + "\n".join(rows) + "\n};")
    out.append(f"const int cgrpy_num_structs = {len(structs)};")
    names = "\n".join(f'  "{rules.class_name(name)}",' for name in enums)
    out.append("const char *const cgrpy_enums[] = {\n" + names + f"\n}};\nconst int cgrpy_num_enums = {len(enums)};\n")
    out.append(enum_checks(model))
    return "\n".join(out)


def enum_checks(model):
    """The generator's numbers are the compiler's."""
    values = [(n, v) for e in model.enums.values() for n, v, _ in e.members] + [(n, v) for n, (v, _) in model.constants.items()]
    return "\n".join(f'_Static_assert((long long){name} == {value}, "{name}");' for name, value in values) + "\n"
