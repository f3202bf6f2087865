"""Writes what is Python: enums.py, the stubs of the extension, and the lists of what is bound and what is left out."""

from . import model as models
from . import rules
from .functions import signature
from .tables import bound_structs, split_arguments

HEAD = '"""Generated from cgr\'s headers."""\n\n'


def quoted(text, indent):
    pad = " " * indent
    escaped = text.replace("\\", "\\\\").replace('"""', "'''")
    body = ("\n" + pad).join(escaped.split("\n"))
    return f'{pad}"""{body}"""' if "\n" not in text else f'{pad}"""{body}\n{pad}"""'


def enums(model):
    out = [HEAD + "import enum\n"]
    for name, (value, doc) in model.constants.items():
        if name not in ("CGR_HEADER_VERSION", "CGR_CONFIG_MAGIC"):
            out.append(f"{name[4:]} = {value}\n")
    for enum in model.enums.values():
        flags = enum.name.endswith("_flag") or enum.name in rules.FLAG_ENUMS
        out.append(f"\nclass {rules.class_name(enum.name)}(enum.{'IntFlag' if flags else 'IntEnum'}):")
        out.append(quoted(enum.doc or enum.name + ".", 4) + "\n")
        names = rules.member_names(enum)
        out += [f"    {names[n]} = {value}" + comment(doc) for n, value, doc in enum.members if n in names]
        out.append("")
    return "\n".join(out)


def comment(doc):
    return f"  #: {' '.join(doc.split())}" if doc else ""


def stub_methods(methods, indent):
    out, pad = [], " " * indent
    for name, arguments, result, doc in methods:
        first = ("cls, " if name == "__new__" else "self, ") if indent else ""
        text = quoted(doc, indent + 4) if doc else f"{pad}    ..."
        out.append(f"{pad}def {name}({(first + arguments).rstrip(', ')}) -> {result}:\n{text}")
    return out


def struct_stub(model, struct):
    fields = models.fields_of(model, struct)
    out = [f"\nclass {rules.class_name(struct.name)}:", quoted(struct.doc or struct.name + ".", 4)]
    enums = {rules.class_name(e.name) for e in model.enums.values()}
    arguments = ", ".join(f"{f.name}: {f.hint}{' | int' if f.hint in enums else ''} = ..." for f in fields)
    out.append(f"    def __init__(self, *, {arguments}) -> None: ...")
    out.append(f"    def copy(self) -> {rules.class_name(struct.name)}: ...")
    for f in fields:
        out.append(f"    {f.name}: {f.hint}")
        out += [quoted(f.doc, 4)] if f.doc else []
    for name, _, _, arguments, result, source in rules.STRUCT_METHODS.get(struct.name, ()):
        out += stub_methods([(name, arguments, result, model.functions[source].doc)], 4)
    return "\n".join(out)


HANDLE_STUBS = {
    "DeviceHandle": [
        ("__new__", "name: str | None = None, config: DeviceConfig | None = None", "Self", "cgr_device_open"),
        ("stream", "", "Stream", "cgr_stream_create"),
        ("event", "", "Event", "cgr_event_create"),
        ("alloc", "bytes: int, /", "Memory", "cgr_memory_alloc"),
        ("alloc_pinned", "bytes: int, /", "Memory", "cgr_memory_alloc_pinned"),
    ],
    "RuntimeHandle": [("__new__", "config: Config", "Self", "cgr_runtime_create")],
    "Recorder": [],
    "Stream": [("synchronize", "", "None", "cgr_stream_synchronize"), ("__cuda_stream__", "", "tuple[int, int]", "")],
    "Event": [
        ("record", "stream: Any, /", "None", "cgr_event_record"),
        ("wait", "stream: Any, /", "None", "cgr_event_wait"),
    ],
    "Memory": [("array", "dtype: int, shape: int | tuple[int, ...] | None = None, offset: int = 0", "Array", "")],
}

ARRAY_STUB = '''
class Array:
    """Memory of a runtime or of Memory, for numpy, DLPack and __cuda_array_interface__."""
    shape: tuple[int, ...]
    address: Any
    def numpy(self) -> Any: ...
    def __dlpack__(self, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    __dlpack_c_exchange_api__: Any
    def __buffer__(self, flags: int, /) -> memoryview: ...
'''


def handle_stub(model, name, generated):
    out = [f"\nclass {name}:", "    closed: bool"]
    if name != "Recorder":
        out += ["    def close(self) -> None: ...", "    def __enter__(self) -> Self: ..."]
        out += ["    def __exit__(self, *exception: Any) -> None: ..."]
    out += ["    device: DeviceHandle"] if name == "RuntimeHandle" else []
    out += ["    config: Config"] if name in ("RuntimeHandle", "Recorder") else []
    out += ["    address: Any", "    bytes: int"] if name == "Memory" else []
    for method, arguments, result, source in HANDLE_STUBS[name]:
        out += stub_methods([(method, arguments, result, model.functions[source].doc if source else "")], 4)
    return "\n".join(out + stub_methods(generated, 4))


def generated_functions(model):
    """{owner: [(name, arguments, result, doc)]}."""
    found = {"": [], "Device": [], "Runtime": [], "Recorder": []}
    for function in model.functions.values():
        if function.name in rules.LEFT_OUT or rules.BY_HAND.get(function.name, ("", ""))[1] is None:
            continue
        owner, _, name = rules.python_name(function).rpartition(".")
        found[owner].append((name, *signature(model, function), function.doc))
    return found


def stubs(model):
    found = generated_functions(model)
    names = ", ".join(sorted(rules.class_name(e.name) for e in model.enums.values()))
    imports = "from collections.abc import Callable, Sequence\nfrom typing import Any, Self\n\nfrom .enums import "
    out = [HEAD + imports + names + "\n"]
    out += [struct_stub(model, s) for s in bound_structs(model)]
    out.append(ARRAY_STUB)
    for name in HANDLE_STUBS:
        out.append(handle_stub(model, name, found.get(name.replace("Handle", ""), [])))
    return "\n".join(out + stub_methods(found[""], 0)) + "\n"


# What cgr/__init__.py has of its own.
PACKAGE_STUB = '''
from ._bound import {bound}
from .engine import Device as Device, Runtime as Runtime
from .errors import Address as Address, CgrError as CgrError
from . import enums as enums

__version__: str
__all__: list[str]

def aligned(bytes: int, alignment: int = 64) -> numpy.typing.NDArray[numpy.uint8]: ...
def on_demand(*buffers: Buffer | int) -> int: ...
'''


def package_stub(model):
    """What `import cgr` has, whose own source takes all of the extension and of enums as they are."""
    own = [name for name, value in model.constants.items() if name not in ("CGR_HEADER_VERSION", "CGR_CONFIG_MAGIC")]
    values = [name[4:] for name in own] + [rules.class_name(e.name) for e in model.enums.values()]
    names = [rules.class_name(s.name) for s in bound_structs(model)] + [name for name, *_ in generated_functions(model)[""]]
    names += ["Array", *(name for name in HANDLE_STUBS if not name.endswith("Handle"))]
    lists = ("FUNCTIONS", "LEFT_OUT", "LEFT_OUT_FIELDS", "LEFT_OUT_STRUCTS")

    def exported(names):
        return ", ".join(f"{name} as {name}" for name in names)

    imports = f"import numpy\nimport numpy.typing\n\nfrom ._cgr import {exported(names)}\nfrom .enums import {exported(values)}"
    return HEAD + imports + PACKAGE_STUB.format(bound=exported(lists))


def bound(model):
    """What tests compare with the binary interface."""
    functions = {f.name: rules.python_name(f) for f in model.functions.values() if f.name not in rules.LEFT_OUT}
    out = [HEAD, "#: Each function of C, and where it is here.", "FUNCTIONS = {"]
    out += [f'    "{name}": "{where}",' for name, where in functions.items()] + ["}", "", "#: Why others are not.", "LEFT_OUT = {"]
    out += [f'    "{name}": "{why}",' for name, why in rules.LEFT_OUT.items()]
    out += ["}", "", "#: Structs, and why one is not here.", "STRUCTS = {"]
    out += [f'    "{s.name}": "{rules.class_name(s.name)}",' for s in bound_structs(model)]
    out += ["}", "LEFT_OUT_STRUCTS = {"] + [f'    "{n}": "{why}",' for n, why in rules.LEFT_OUT_STRUCTS.items()]
    out += ["}", "", "#: struct.field, and why it is not here.", "LEFT_OUT_FIELDS = {"]
    for s in bound_structs(model):
        missing = [(f.name, rules.left_out_field(s.name, f.name)) for f in s.fields]
        out += [f'    "{s.name}.{name}": "{why}",' for name, why in missing if why]
    out += ["}", "", "#: Enumerators: where they are.", "ENUMERATORS = {"]
    for e in model.enums.values():
        out += [f'    "{n}": "{rules.class_name(e.name)}.{name}",' for n, name in rules.member_names(e).items()]
    out += [f'    "{n}": "{n[4:]}",' for n in model.constants if n not in ("CGR_HEADER_VERSION", "CGR_CONFIG_MAGIC")]
    return "\n".join(out + ["}", ""])
