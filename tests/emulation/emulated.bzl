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
{stand_ins}#include "{source}"
"""

# kernels/cuda/step/planner.cu is step_planner, for which stand_ins/step.h and stand_ins/step_planner.h are.
def _stands_in(stand_in, source):
    name = source.short_path[len("kernels/cuda/"):-len(".cu")].replace("/", "_") + "_"
    return name.startswith(stand_in.basename[:-len(".h")] + "_")

def _sources_impl(ctx):
    files = []
    for source in ctx.files.srcs:
        out = ctx.actions.declare_file("_emulated/%s.cc" % source.short_path)
        ctx.actions.write(out, _TEXT.format(
            stand_ins = "".join(["#include \"%s\"\n" % s.short_path for s in ctx.files.stand_ins if _stands_in(s, source)]),
            source = source.short_path,
        ))
        files.append(out)
    return [DefaultInfo(files = depset(files))]

_sources = rule(
    implementation = _sources_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "stand_ins": attr.label_list(allow_files = [".h"]),
    },
)

def emulated_kernels(name, srcs, headers, deps):
    """A library of the launchers of .cu files, by the names of stand_ins/names.h.

    What a kernel has from the toolkit or in PTX comes from the headers of stand_ins that are called after its folder or itself.

    Args:
      name: the target
      srcs: .cu files, each a compilation of its own
      headers: targets of those that the kernels include
      deps: C libraries whose headers they include
    """
    _sources(
        name = name + "_sources",
        testonly = True,
        srcs = srcs,
        stand_ins = native.glob(["stand_ins/*.h"]),
    )
    cgr_cc_library(
        name = name,
        srcs = [name + "_sources"],
        textual_hdrs = headers + srcs,
        copts = EMULATED_COPTS,
        deps = deps + ["//tests/emulation"],
    )
