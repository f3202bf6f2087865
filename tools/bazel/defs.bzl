"""The project's rules: C11 libraries, programs and tests, GoogleTest tests, and the public library."""

load("@rules_cc//cc:defs.bzl", _cc_binary = "cc_binary", _cc_import = "cc_import", _cc_library = "cc_library", _cc_test = "cc_test")
load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")
load(":optimised.bzl", "OPTIMISED")
load(":programs.bzl", "PROGRAMS")
load(":throwing.bzl", "THROWING")

cc_binary = _cc_binary
cc_import = _cc_import

_WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Werror"]

# _DEFAULT_SOURCE gives back POSIX, which -std=c11 hides. A shared library that links libcgr.a exports of it only what is CGR_API.
_C_COPTS = ["-std=c11", "-D_DEFAULT_SOURCE", "-fvisibility=hidden", "-pedantic", "-Wstrict-prototypes"] + _WARNINGS

_CC_COPTS = ["-std=c++17"] + _WARNINGS

# Static everywhere: the programs also run where there is no Bazel.
def cgr_c_library(copts = [], **kwargs):
    _cc_library(copts = _C_COPTS + copts, linkstatic = True, **kwargs)

def cgr_c_binary(copts = [], **kwargs):
    _cc_binary(copts = _C_COPTS + copts, linkstatic = True, **kwargs)

# 900 s, as in CMake (tools/cmake/tests.cmake). A test takes at most a minute of one core (CONTRIBUTING.md), so a machine five times
# slower, which runs three programs on each core, still has enough.
_TIMEOUT = "long"

def cgr_c_test(copts = [], **kwargs):
    _cc_test(copts = _C_COPTS + copts, linkstatic = True, timeout = _TIMEOUT, **kwargs)

def cgr_cc_library(copts = [], **kwargs):
    _cc_library(copts = _CC_COPTS + copts, linkstatic = True, **kwargs)

# Compiling takes longer than running: what a test calls is optimised, the test itself is not. FORTIFY_SOURCE needs optimisation.
_NOT_OPTIMISED = ["-O0", "-U_FORTIFY_SOURCE"]

# An exception that a library throws still ends the test with a message, but no destructor runs on the way.
_NO_EXCEPTIONS = ["-fno-exceptions"]

# What tests read first, and what it is precompiled with: targets of //tests/support.
PRECOMPILED = {
    "precompiled": _CC_COPTS + _NOT_OPTIMISED + _NO_EXCEPTIONS,
    "precompiled_engine": _CC_COPTS + _NOT_OPTIMISED + _NO_EXCEPTIONS, # with the headers of an engine
    "precompiled_optimised": _CC_COPTS + _NO_EXCEPTIONS, # also what tests call
    "precompiled_throwing": _CC_COPTS + _NOT_OPTIMISED,
}

def _include(precompiled):
    return ["-include", precompiled + ".h"]

def _needed(precompiled):
    return ["//tests/support:" + precompiled, "//tests/support:instantiated"]

def _precompiled_of(srcs, deps):
    paths = [native.package_name() + "/" + s for s in srcs]
    if [p for p in paths if p in OPTIMISED]:
        return "precompiled_optimised"
    if [p for p in paths if p in THROWING]:
        return "precompiled_throwing"
    return "precompiled_engine" if "//tests/support:engine" in deps else "precompiled"

def cgr_test_libraries(libraries, **kwargs):
    """Libraries of tests: for each name its files and what it needs, each a string with spaces between the words."""
    for name, (files, deps) in libraries.items():
        sources = [file for file in files.split(" ") if file.endswith(".cc")]
        cgr_cc_library(
            name = name,
            testonly = True,
            srcs = sources,
            hdrs = [file for file in files.split(" ") if file.endswith(".h")],
            copts = _NO_EXCEPTIONS + _include("precompiled_optimised"),
            deps = [dep for dep in deps.split(" ") if dep] + (_needed("precompiled_optimised") if sources else []),
            **kwargs
        )

def cgr_cc_test(srcs, copts = [], deps = [], linkopts = [], **kwargs):
    """A test through GoogleTest."""
    first = _precompiled_of(srcs, deps)
    _cc_test(
        srcs = srcs,
        copts = PRECOMPILED[first] + _include(first) + copts,
        linkopts = linkopts + ["-lstdc++"],
        linkstatic = True,
        timeout = _TIMEOUT,
        deps = deps + _needed(first) + ["@com_google_googletest//:gtest_main"],
        **kwargs
    )

# Whether `name` is that of the pattern, which may have one star.
def _matches(pattern, name):
    start, end = (pattern + "*").split("*")[:2]
    return name.startswith(start) and name.endswith(end) and "/" not in name[len(start):]

# The program that a test file of this package is linked into, from PROGRAMS.
def _program_of(source):
    for line in PROGRAMS:
        pattern, program = line.split(": ")
        if _matches(pattern, native.package_name() + "/" + source):
            return program
    return source[:-len(".cc")]

# What the table has for the source: its keys are patterns.
def _of(table, source):
    return [label for pattern, labels in table.items() if _matches(pattern, source) for label in labels]

def cgr_tests(deps = [], more = {}, exclude = [], gpu_short = [], data = {}):
    """A test per *_test.cc of the folder, or per PROGRAMS: `deps` for all, and what `more` and `data` list for a file besides.

    Files of `gpu_short` get that tag: short, and what sanitizers and repetitions run on a GPU. It, `more` and `data` take patterns.
    """
    sources = native.glob(["*_test.cc"], exclude = exclude)
    for pattern in gpu_short + more.keys() + data.keys():
        if not [source for source in sources if _matches(pattern, source)]:
            fail("cgr_tests: %s is not a test of this folder" % pattern)
    programs = {}
    for source in sources:
        name = _program_of(source)
        programs[name] = programs.get(name, []) + [source]
    for name, files in programs.items():
        needed = {label: None for label in deps + [label for source in files for label in _of(more, source)]}
        cgr_cc_test(
            name = name,
            srcs = files,
            data = {label: None for source in files for label in _of(data, source)}.keys(),
            deps = needed.keys(),
            tags = ["gpu_short"] if [s for s in files for pattern in gpu_short if _matches(pattern, s)] else [],
        )

def _cgr_public_library_impl(ctx):
    hdrs = cc_common.merge_cc_infos(cc_infos = [h[CcInfo] for h in ctx.attr.hdrs])
    deps = cc_common.merge_cc_infos(cc_infos = [d[CcInfo] for d in ctx.attr.hdrs + ctx.attr.deps])
    return [
        DefaultInfo(files = depset(transitive = [d[DefaultInfo].files for d in ctx.attr.deps])),
        CcInfo(compilation_context = hdrs.compilation_context, linking_context = deps.linking_context),
    ]

# Bazel 4 has no implementation_deps; a user's compilation must not see the library's own headers.
cgr_public_library = rule(
    implementation = _cgr_public_library_impl,
    attrs = {
        "deps": attr.label_list(doc = "linked, not seen", providers = [CcInfo]),
        "hdrs": attr.label_list(doc = "libraries whose headers users see", providers = [CcInfo]),
    },
)

def _cgr_archive_impl(ctx):
    toolchain = find_cc_toolchain(ctx)
    objects = []
    for dep in ctx.attr.deps:
        for linked in dep[CcInfo].linking_context.linker_inputs.to_list():
            # The project's own; the CUDA runtime stays an archive of its own.
            if linked.owner.workspace_name == ctx.label.workspace_name:
                for library in linked.libraries:
                    objects += library.pic_objects or library.objects or []
    out = ctx.actions.declare_file(ctx.attr.name)
    args = ctx.actions.args()
    args.add("qcD")
    args.add(out)
    args.add_all(objects)
    args.use_param_file("@%s")
    ctx.actions.run(
        executable = toolchain.ar_executable,
        arguments = [args],
        inputs = depset(objects, transitive = [toolchain.all_files]),
        outputs = [out],
        mnemonic = "CgrArchive",
    )
    return [DefaultInfo(files = depset([out]), runfiles = ctx.runfiles([out]))]

# One archive of the whole library, for those who build without Bazel.
cgr_archive = rule(
    implementation = _cgr_archive_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = use_cc_toolchain(),
)

_SourcesInfo = provider(fields = ["files"])

def _sources_aspect_impl(_target, ctx):
    own = []
    deeper = []
    for name in ["srcs", "hdrs", "deps"]:
        for dep in getattr(ctx.rule.attr, name, []):
            own += [f for f in dep.files.to_list() if f.is_source and not f.short_path.startswith("../")]
            if _SourcesInfo in dep:
                deeper.append(dep[_SourcesInfo].files)
    return [_SourcesInfo(files = depset(own, transitive = deeper))]

_sources_aspect = aspect(
    implementation = _sources_aspect_impl,
    attr_aspects = ["srcs", "hdrs", "deps"],
)

def _source_files_impl(ctx):
    files = depset(transitive = [d[_SourcesInfo].files for d in ctx.attr.deps])
    return [DefaultInfo(files = files, runfiles = ctx.runfiles(transitive_files = files))]

# Every source of the project that goes into `deps`, for a test that reads them.
source_files = rule(
    implementation = _source_files_impl,
    attrs = {"deps": attr.label_list(aspects = [_sources_aspect])},
)
