"""emulated_kernels: .cu files compiled as C++ against tests/emulation/cuda.h."""

load("//tools/bazel:defs.bzl", "cgr_cc_library")

# nvcc takes no types for granted in memory; neither does this. Products and sums are not contracted, or bits would depend on what is
# inlined where. Dynamic shared memory has nothing to begin at its first use. A fiber gets no second stack from the address sanitizer: to
# make one takes longer than most kernels.
EMULATED_COPTS = [
    "--param=asan-use-after-return=0",
    "-Itests/emulation/toolkit",
    "-ffp-contract=off",
    "-fno-extern-tls-init",
    "-fno-strict-aliasing",
    "-Wno-shadow",
    "-Wno-sign-compare",
    "-Wno-unknown-pragmas",
    "-Wno-unused-function",
]

_TEXT = """#include "tests/emulation/cuda.h"
{prelude}{shared}#include "{source}"
"""

_SHARED = "namespace cgr {{ namespace {{ CGR_EMULATED_SHARED({}, {}); }} }}\n"

def _sources_impl(ctx):
    files = []
    for source in ctx.files.srcs:
        shared = ctx.attr.shared.get(source.basename, "")
        out = ctx.actions.declare_file("_emulated/%s.cc" % source.short_path)
        ctx.actions.write(out, _TEXT.format(
            prelude = "".join(["#include \"%s\"\n" % p for p in ctx.attr.prelude]),
            shared = _SHARED.format(*shared.rsplit(" ", 1)) if shared else "",
            source = source.short_path,
        ))
        files.append(out)
    return [DefaultInfo(files = depset(files))]

_sources = rule(
    implementation = _sources_impl,
    attrs = {
        "prelude": attr.string_list(),
        "shared": attr.string_dict(),
        "srcs": attr.label_list(allow_files = [".cu"]),
    },
)

def emulated_kernels(name, srcs, headers, deps, prelude = [], shared = {}):
    """A library of the launchers of .cu files, by the names of stand_ins/names.h.

    Args:
      name: the target
      srcs: .cu files, each a compilation of its own
      headers: those of the kernels
      deps: C libraries whose headers they include
      prelude: headers that stand in for headers of the kernels
      shared: dynamic shared memory of a file, where it is in the unnamed namespace: "int32_t words"
    """
    _sources(
        name = name + "_sources",
        testonly = True,
        srcs = srcs,
        prelude = prelude,
        shared = shared,
    )
    cgr_cc_library(
        name = name,
        srcs = [name + "_sources"],
        textual_hdrs = [headers] + srcs,
        copts = EMULATED_COPTS,
        deps = deps + ["//tests/emulation"],
    )
