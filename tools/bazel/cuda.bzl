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
    "--objdir-as-tempdir",  # names in /tmp meet those of another build: in a sandbox every process number is the same
    "-lineinfo",
    "-Xfatbin=-compress-all",  # the library has each kernel for each architecture: 6.5 MB in place of 31
    "-DNDEBUG",
    "-Werror=all-warnings",
]

# Without exceptions, type information and guarded statics, nothing of the C++ runtime is needed at link time.
_HOST_FLAGS = [
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-Wall",
    "-Wextra",
]

def _archs(setting):
    """The architectures of --//tools/bazel:cuda_archs, "80,90a": numbers, with a letter where one asks for native features."""
    archs = [a.strip() for a in setting.split(",") if a.strip()]
    for arch in archs:
        if not _number(arch).isdigit():
            fail("cuda_archs: %s is no architecture, expected one such as 80 or 90a" % arch)
    if not archs:
        fail("cuda_archs is empty, expected architectures such as 80,90a")
    return archs

def _number(arch):
    return arch[:-1] if arch[-1] in "af" else arch

def _gencode(archs, native_arch):
    """nvcc's flags.

    Files with a native architecture are for exactly that one, and only if the list asks for it by its letter. All others are
    for every architecture of the list, and use no native features: 90a is as good as 90 for them, and the PTX of the lowest runs
    on whatever comes later.
    """
    if native_arch:
        return [_sass(native_arch)] if native_arch in archs else []
    numbers = sorted({int(_number(a)): None for a in archs}.keys())
    return [_sass(n) for n in numbers] + [_ptx(numbers[0])]

def _sass(arch):
    return "-gencode=arch=compute_%s,code=sm_%s" % (arch, arch)

def _ptx(arch):
    return "-gencode=arch=compute_%s,code=compute_%s" % (arch, arch)

def _native_define(native_arch):
    return "CGR_HAS_SM%s=1" % native_arch.upper()

def _check():
    """Fails the build when a list of architectures asks for something other than it says."""
    for setting, sass, lowest, native in [
        ("80,90a", ["80", "90"], "80", ["90a"]),
        (" 80 , 90a ,100a", ["80", "90", "100"], "80", ["90a", "100a"]),
        ("90", ["90"], "90", []),
        ("90a", ["90"], "90", ["90a"]),
        ("120", ["120"], "120", []),
        ("100,90,80", ["80", "90", "100"], "80", []),
        ("90,90a", ["90"], "90", ["90a"]),
        ("100f,80", ["80", "100"], "80", []),
    ]:
        archs = _archs(setting)
        cases = [("", [_sass(a) for a in sass] + [_ptx(lowest)])]
        cases += [(a, [_sass(a)] if a in native else []) for a in ["90a", "100a"]]
        for native_arch, want in cases:
            got = _gencode(archs, native_arch)
            if got != want:
                fail("cuda_archs %s, native %s: the flags are %s, expected %s" % (setting, native_arch or "none", got, want))
    if _native_define("90a") != "CGR_HAS_SM90A=1":
        fail("the define of 90a is %s" % _native_define("90a"))

_CHECKED = _check()

def _compile(ctx, toolchain, src, headers, gencode):
    out = ctx.actions.declare_file("_objs/%s/%s.o" % (ctx.label.name, src.short_path[len(ctx.label.package):].strip("/")))
    args = ctx.actions.args()
    args.add("-ccbin", toolchain.compiler_executable)
    args.add_all(_NVCC_FLAGS)
    args.add_all(gencode)
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
        # The toolkit is not an input: its version stands for it, so that another toolkit causes a rebuild.
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
    gencode = _gencode(_archs(ctx.attr._archs[StringSettingInfo].value), ctx.attr.native_arch)
    srcs = ctx.files.srcs if gencode else []
    objects = [_compile(ctx, toolchain, src, deps.compilation_context, gencode) for src in srcs]
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
    own = cc_common.create_compilation_context(
        headers = depset(ctx.files.hdrs),
        defines = depset([_native_define(ctx.attr.native_arch)] if ctx.attr.native_arch and objects else []),
    )
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
      native_arch: e.g. "90a" for files that use the features of one architecture: left out unless cuda_archs lists it; when they
        are there, targets that depend on this are compiled with CGR_HAS_SM90A=1
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
