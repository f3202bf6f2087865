"""Decides what each field of a struct is in Python, for C tables and stubs alike."""

import re
from dataclasses import dataclass

from . import rules

SIGNED = {"int8_t": 1, "int32_t": 4, "int64_t": 8, "int": 4}
UNSIGNED = {"uint32_t": 4, "uint64_t": 8, "size_t": 8, "uint8_t": 1}
REAL = {"float": 4, "double": 8}
NUMBERS = {**{k: "SIGNED" for k in SIGNED}, **{k: "UNSIGNED" for k in UNSIGNED}, **{k: "REAL" for k in REAL}}
BYTES = {**SIGNED, **UNSIGNED, **REAL}


@dataclass
class Field:
    name: str
    kind: str
    doc: str
    bytes: str = "0"
    dims: tuple = ()
    type: str = "0"
    keeps: int = 0
    enum: str = ""
    writable: bool = False
    host: bool = False
    address: bool = False
    strided: bool = False
    count: str = ""
    length: str = ""
    hint: str = "Any"


def fields_of(model, struct):
    """The bound fields of a struct."""
    return [classify(model, struct, f) for f in struct.fields if not rules.left_out_field(struct.name, f.name)]


def num_keeps(model, name):
    return sum(f.keeps for f in fields_of(model, model.structs[name]))


def classify(model, struct, f):
    field = classified(model, struct, f)
    field.doc = rules.FIELD_DOCS.get(f"{struct.name}.{f.name}", field.doc)
    return field


def classified(model, struct, f):
    base, full = f.type.base, f"{struct.name}.{f.name}"
    if f.parameters is not None or base in model.callbacks:
        return Field(f.name, "CALLABLE", f.doc, keeps=1, hint="Callable[..., Any] | None")
    if base == "char":
        if f.type.stars:
            return Field(f.name, "TEXT", f.doc, keeps=1, hint="str | None")
        return Field(f.name, "CHARS", f.doc, bytes=f.type.dims[0], hint="str")
    if full in rules.OBJECTS:
        return Field(f.name, "OBJECT", f.doc, keeps=1)
    if base == "cgr_device_layer":
        return Field(f.name, "VALIDATE", f.doc, hint="bool")
    if base == "cgr_device":
        return Field(f.name, "DEVICE", f.doc, keeps=1, hint="DeviceHandle | None")
    if base == "cudaStream_t":
        return Field(f.name, "STREAM", f.doc, hint="Any")
    if base in model.structs:
        return classify_struct(model, struct, f, full)
    if f.type.stars:
        return classify_pointer(struct, f, full)
    return classify_number(model, f, full)


def classify_struct(model, struct, f, full):
    name = rules.class_name(f.type.base)
    index = f"cgrpy_type_{f.type.base[4:]}"
    if not f.type.stars:
        return Field(f.name, "STRUCT", f.doc, type=index, keeps=num_keeps(model, f.type.base), hint=name)
    count = "" if full in rules.SINGLE or full in rules.STRUCT_LENGTHS else f"num_{f.name}"
    hint = f"{name} | None" if full in rules.SINGLE else f"Sequence[{name}] | None"
    length = rules.STRUCT_LENGTHS.get(full, "")
    return Field(f.name, "STRUCTS", f.doc, type=index, keeps=1, count=count, hint=hint, length=length)


def classify_pointer(struct, f, full):
    base = f.type.base
    count = rules.COUNTS.get(full, "")
    return Field(
        f.name,
        "ARRAYS" if f.type.stars == 2 else "DATA",
        f.doc,
        bytes=str(BYTES.get(base, 0)),
        type=f"CGRPY_{NUMBERS.get(base, 'ANY')}",
        keeps=1,
        writable=not f.type.const,
        host=struct.name in rules.HOST_RESULTS or full in rules.ON_HOST,
        address=full in rules.ADDRESSES,
        strided=full in rules.STRIDED,
        count=count,
        length=length_of(struct, f, full) or "",
        hint="Sequence[Any] | None" if f.type.stars == 2 else "Any",
    )


def classify_number(model, f, full):
    base, enum = f.type.base, enum_of(model, f, full)
    kind = {"SIGNED": "INT", "UNSIGNED": "UINT", "REAL": "FLOAT"}[NUMBERS[base]]
    if f.type.dims:
        dims = tuple(str(model.constants[d][0]) if d in model.constants else d for d in f.type.dims)
        hint = "tuple[tuple[int, ...], ...]" if len(dims) == 2 else "tuple[int, ...]"
        return Field(f.name, kind + "S", f.doc, bytes=str(BYTES[base]), dims=dims, hint=hint)
    hint = rules.class_name(enum) if enum else "float" if kind == "FLOAT" else "int"
    return Field(f.name, kind, f.doc, bytes=str(BYTES[base]), enum=enum, hint=hint)


def enum_of(model, f, full):
    """The enum that the comment begins with: "cgr_dtype of q", "CGR_LAYER_*"; of cgr_fa3_input.dtype and such by the name."""
    named = re.match(r"(cgr_\w+)", f.doc)
    if named and named[1] in model.enums:
        return named[1]
    flags = re.match(r"(CGR_\w+_)\*", f.doc)
    if flags:
        return rules.FLAG_FIELDS.get(flags[1], "")
    return {"dtype": "cgr_dtype", "out_dtype": "cgr_dtype", "q_dtype": "cgr_dtype", "status": "cgr_status"}.get(f.name, "")


def length_of(struct, f, full):
    if full in rules.LENGTHS:
        return rules.LENGTHS[full]
    match = re.match(r"(?:device, )?(?:out, )?\[([^\]]+)\](\[[^\]]+\])?", f.doc)
    names = {g.name for g in struct.fields}
    if not match or match[2]:
        return None
    text = match[1].replace("B + 1", "num_requests + 1")
    text = "num_requests" if text == "B" else text
    words = re.findall(r"[A-Za-z_]\w*", text)
    if not all(word in names for word in words):
        return None
    return re.sub(r"([A-Za-z_]\w*)", r"(int64_t)s->\1", text)
