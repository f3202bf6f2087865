"""A Python binding of cgr, made from the headers by cffi: none of it is written by hand.

The preprocessor reads <cgr/bindings.h>; what comes from cgr's headers, not the system's, is given to cffi unchanged except for the
attribute of exported functions, which cffi does not know.
"""

import os
import re
import subprocess

import cffi

EXPORTED = '__attribute__((visibility("default")))'


def declarations(include):
    """The headers below `include`, preprocessed, without the system's."""
    include = os.path.normpath(include)  # the preprocessor's markers have no double or trailing slashes
    compiler = os.environ.get("CC") or "gcc"
    command = [compiler, "-E", "-std=c11", "-I", include, os.path.join(include, "cgr/bindings.h")]
    own, lines = False, []
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            own = marker[1].startswith(include + "/")
        elif own:
            lines.append(line.replace(EXPORTED, ""))
    if not lines:
        raise FileNotFoundError(f"no declarations of cgr below {include}")
    return "\n".join(lines)


class Error(Exception):
    """A call that failed: its status, and the message of cgr_last_message."""

    def __init__(self, status, message):
        super().__init__(f"{status}: {message}")
        self.status, self.message = status, message


class Binding:
    def __init__(self, include, library):
        self.text = declarations(include)
        self.ffi = cffi.FFI()
        self.ffi.cdef(self.text)
        self.lib = self.ffi.dlopen(library)

    def new(self, name, **fields):
        """A struct as its _INIT macro makes it; one without such a macro is zero."""
        struct = self.ffi.new(f"{name} *")
        kind = getattr(self.lib, name.upper().replace("CGR_", "CGR_STRUCT_", 1), None)
        if kind is not None:
            self.call("cgr_init", kind, self.lib.CGR_HEADER_VERSION, struct, self.ffi.sizeof(name))
        for field, value in fields.items():
            setattr(struct, field, value)
        return struct

    def call(self, name, *arguments):
        """Calls a function that returns a status; any status but CGR_OK raises an Error."""
        status = getattr(self.lib, name)(*arguments)
        if status != self.lib.CGR_OK:
            raise Error(self.string(self.lib.cgr_status_name(status)), self.string(self.lib.cgr_last_message()))

    def made(self, name, kind, *arguments):
        """What a function returns through its last argument."""
        out = self.ffi.new(f"{kind} *")
        self.call(name, *arguments, out)
        return out[0]

    def string(self, text):
        return self.ffi.string(text).decode()
