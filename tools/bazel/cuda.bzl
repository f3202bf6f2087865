"""cuda_library: .cu files through nvcc, one action per file."""

load("@local_cuda//:defs.bzl", "cuda_available", "nvcc", "nvcc_version")
load("@rules_cc//cc:defs.bzl", "cc_library")
load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

StringSettingInfo = provider(fields = ["value"])

def _string_setting_impl(ctx):
    return StringSettingInfo(value = ctx.build_setting_value)

string_setting = rule(
    implementation = _string_setting_impl,
    build_setting = config.string(flag = True),
)

_NVCC_FLAGS = [
    "-O3",
    "-std=c++17",
    "--expt-relaxed-constexpr",
    "-lineinfo",
    "-DNDEBUG",
    "-Werror=all-warnings",
]

# Without exceptions, type information and guarded statics nothing of the C++ runtime is needed at link time.
_HOST_FLAGS = [
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-Wall",
    "-Wextra",
]

def _number(arch):
    return int("".join([c for c in arch.elems() if c.isdigit()]))

def _gencode(archs, native_arch):
    """nvcc's flags for the architectures asked for, or for those from native_arch up if the files need its features."""
    if native_arch:
        archs = [a for a in archs if _number(a) >= _number(native_arch)] or [native_arch]
    flags = ["-gencode=arch=compute_%s,code=sm_%s" % (a, a) for a in archs]
    portable = [a for a in archs if a.isdigit()]
    if portable:
        flags.append("-gencode=arch=compute_%s,code=compute_%s" % (portable[0], portable[0]))
    return flags

def _compile(ctx, toolchain, src, headers):
    out = ctx.actions.declare_file("_objs/%s/%s.o" % (ctx.label.name, src.short_path[len(ctx.label.package):].strip("/")))
    archs = [a.strip() for a in ctx.attr._archs[StringSettingInfo].value.split(",") if a.strip()]
    args = ctx.actions.args()
    args.add("-ccbin", toolchain.compiler_executable)
    args.add_all(_NVCC_FLAGS)
    args.add_all(_gencode(archs, ctx.attr.native_arch))
    args.add("-Xcompiler", ",".join(_HOST_FLAGS))
    args.add_all(depset(transitive = [headers.includes, headers.quote_includes]), before_each = "-I")
    args.add_all(headers.system_includes, before_each = "-isystem")
    args.add_all(headers.defines, before_each = "-D")
    args.add_all(ctx.attr.copts)
    args.add("-c", src)
    args.add("-o", out)
    ctx.actions.run(
        executable = nvcc,
        arguments = [args],
        inputs = depset([src] + ctx.files.hdrs, transitive = [headers.headers, toolchain.all_files]),
        outputs = [out],
        # The toolkit is no input: its version stands for it, so that another one compiles anew.
        env = {"CGR_NVCC_VERSION": nvcc_version, "PATH": "/usr/local/bin:/usr/bin:/bin"},
        mnemonic = "CudaCompile",
        progress_message = "Compiling %s" % src.short_path,
    )
    return out

def _cuda_library_impl(ctx):
    toolchain = find_cc_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    deps = cc_common.merge_cc_infos(cc_infos = [d[CcInfo] for d in ctx.attr.deps])
    objects = [_compile(ctx, toolchain, src, deps.compilation_context) for src in ctx.files.srcs]
    linking_context, _ = cc_common.create_linking_context_from_compilation_outputs(
        actions = ctx.actions,
        name = ctx.label.name,
        cc_toolchain = toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(
            # Position-independent, and good for both kinds of link.
            objects = depset(objects),
            pic_objects = depset(objects),
        ),
        disallow_dynamic_library = True,
        feature_configuration = features,
        linking_contexts = [deps.linking_context],
    )
    own = cc_common.create_compilation_context(headers = depset(ctx.files.hdrs))
    headers = cc_common.merge_cc_infos(cc_infos = [
        CcInfo(compilation_context = own),
        CcInfo(compilation_context = deps.compilation_context),
    ])
    return [
        DefaultInfo(files = depset(objects)),
        CcInfo(compilation_context = headers.compilation_context, linking_context = linking_context),
    ]

_cuda_library = rule(
    implementation = _cuda_library_impl,
    attrs = {
        "copts": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = True),
        "native_arch": attr.string(),
        "srcs": attr.label_list(allow_files = [".cu"]),
        "_archs": attr.label(default = "//tools/bazel:cuda_archs"),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = use_cc_toolchain(),
)

def cuda_library(name, srcs = [], hdrs = [], deps = [], copts = [], native_arch = "", **kwargs):
    """Objects of .cu files with their launchers behind extern "C", for C targets. Empty without a CUDA toolkit.

    Args:
      name: the target
      srcs: .cu files, compiled in parallel
      hdrs: headers of the same folder (.h, .cuh)
      deps: C libraries whose headers they include
      copts: more flags for nvcc
      native_arch: e.g. "90a" for files that use the features of one architecture; older ones are then left out
      **kwargs: visibility, testonly, tags
    """
    if cuda_available and srcs:
        _cuda_library(
            name = name,
            srcs = srcs,
            hdrs = hdrs,
            copts = copts,
            native_arch = native_arch,
            deps = deps + ["@local_cuda//:cudart_static"],
            **kwargs
        )
    else:
        cc_library(name = name, hdrs = hdrs, deps = deps, **kwargs)
