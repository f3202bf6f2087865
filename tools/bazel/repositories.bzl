"""Repositories of what the build takes from outside: the CUDA toolkit, GoogleTest and cJSON.

The libraries come from the system's packages where they are installed, or else from their release archives.
"""

_MIN_CUDA = 12040

_NO_CUDA_BUILD = """
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

[cc_library(name = name) for name in ["headers", "cudart_static", "cublaslt"]]
"""

# A compilation sees the headers that C code asks for, not all of the toolkit's thousands (nvcc finds its own).
_CUDA_BUILD = """
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob(
        [
            "include/builtin_types.h",
            "include/channel_descriptor.h",
            "include/crt/*.h",
            "include/cu*.h",
            "include/device_*.h",
            "include/driver_*.h",
            "include/host_*.h",
            "include/library_types.h",
            "include/nvtx3/**",
            "include/surface_*.h",
            "include/texture_*.h",
            "include/vector_*.h",
        ],
        exclude = ["include/cudnn*"],
    ),
    includes = ["include"],
)

cc_library(
    name = "cudart_static",
    srcs = ["lib/libcudart_static.a"],
    linkopts = ["-ldl", "-lrt", "-lpthread"],
    deps = [":headers"],
)

# By name and rpath, so that half a gigabyte is not copied into runfiles.
cc_library(
    name = "cublaslt",
    linkopts = [%s],
    deps = [":headers"],
)
"""

_CUDA_DEFS = """
cuda_available = {available}
cublaslt_available = {cublaslt}
nvtx_available = {nvtx}
nvtx_schemas_available = {nvtx_schemas}
nvcc = "{nvcc}"
nvcc_version = "{version}"
cuda_version = "{readable}"

def if_cuda(then, otherwise = []):
    return then if cuda_available else otherwise

def if_cublaslt(then, otherwise = []):
    return then if cublaslt_available else otherwise

def if_nvtx(then, otherwise = []):
    return then if nvtx_available else otherwise

def if_nvtx_schemas(then, otherwise = []):
    return then if nvtx_schemas_available else otherwise
"""

def _cuda_root(ctx):
    home = ctx.os.environ.get("CUDA_HOME")
    if home:
        if not ctx.path(home + "/bin/nvcc").exists:
            fail("CUDA_HOME is %s, which has no bin/nvcc" % home)
        return ctx.path(home)
    on_path = ctx.which("nvcc")
    for root in ([on_path.dirname.dirname] if on_path else []) + [ctx.path("/usr/local/cuda")]:
        if root.get_child("bin").get_child("nvcc").exists and ctx.path(str(root) + "/include/cuda_runtime_api.h").exists:
            return root
    return None

def _cudart_version(ctx, root):
    for line in ctx.read(str(root) + "/include/cuda_runtime_api.h").split("\n"):
        words = line.replace("\t", " ").split(" ")
        if line.startswith("#define") and "CUDART_VERSION" in words:
            return int([w for w in words if w][2].strip())
    return 0

def _lib_dir(ctx, root):
    for name in ["lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"]:
        path = "%s/%s" % (root, name)
        if ctx.path(path + "/libcudart_static.a").exists:
            return path
    return None

def _usable_cuda(ctx):
    """The toolkit's root, library folder and version, or Nones when there is none that serves."""
    root = _cuda_root(ctx) if ctx.os.environ.get("CGR_CUDA") != "0" else None
    lib = _lib_dir(ctx, root) if root else None
    version = _cudart_version(ctx, root) if lib else 0
    if ctx.os.environ.get("CGR_CUDA") == "1" and version < _MIN_CUDA:
        fail("CGR_CUDA is 1 (--config=cuda), expected a CUDA toolkit of 12.4 or later with libcudart_static.a: %s" %
             ("%s is %d" % (root, version) if lib else "CUDA_HOME, nvcc on PATH and /usr/local/cuda name none"))
    if not lib:
        return None, None, None
    if version < _MIN_CUDA:
        # buildifier: disable=print
        print("CUDA toolkit %s (%d) is older than 12.4: building for the host device alone" % (root, version))
        return None, None, None
    return root, lib, version

def _local_cuda_impl(ctx):
    root, lib, version = _usable_cuda(ctx)
    cublaslt = bool(root) and ctx.path(lib + "/libcublasLt.so").exists and ctx.path(str(root) + "/include/cublasLt.h").exists
    if root:
        ctx.symlink(str(root) + "/include", "include")
        ctx.symlink(lib + "/libcudart_static.a", "lib/libcudart_static.a")
        link = ['"-L%s"' % lib, '"-lcublasLt"', '"-Wl,-rpath,%s"' % lib] if cublaslt else []
        ctx.file("BUILD", _CUDA_BUILD % ", ".join(link))
    else:
        ctx.file("BUILD", _NO_CUDA_BUILD)
    ctx.file("defs.bzl", _CUDA_DEFS.format(
        available = bool(root),
        cublaslt = cublaslt,
        nvtx = bool(root) and ctx.path(str(root) + "/include/nvtx3/nvToolsExt.h").exists,
        nvtx_schemas = bool(root) and ctx.path(str(root) + "/include/nvtx3/nvToolsExtPayload.h").exists,
        nvcc = "%s/bin/nvcc" % root if root else "",
        version = version or "",
        readable = "%d.%d" % (version // 1000, version % 1000 // 10) if version else "",
    ))

local_cuda = repository_rule(
    implementation = _local_cuda_impl,
    configure = True,
    doc = "The toolkit of CUDA_HOME, of the nvcc on PATH or of /usr/local/cuda. Empty if there is none or CGR_CUDA=0; with CGR_CUDA=1 there has to be one.",
    environ = ["CGR_CUDA", "CUDA_HOME"],
    local = True,
)

def _googletest_impl(ctx):
    if ctx.path("/usr/src/googletest/googletest/src/gtest-all.cc").exists:
        ctx.symlink("/usr/src/googletest/googletest", "googletest")
    else:
        ctx.download_and_extract(
            sha256 = "81964fe578e9bd7c94dfdb09c8e4d6e6759e19967e397dbea48d1c10e45d0df2",
            stripPrefix = "googletest-release-1.12.1",
            url = [
                "https://github.com/google/googletest/archive/refs/tags/release-1.12.1.tar.gz",
            ],
        )

        ctx.delete("BUILD.bazel")  # it would go before ours
    ctx.symlink(ctx.attr._build_file, "BUILD")

googletest = repository_rule(
    implementation = _googletest_impl,
    attrs = {"_build_file": attr.label(default = "//tools/bazel/third_party:googletest.BUILD")},
)

def _cjson_impl(ctx):
    system = ctx.path("/usr/include/cjson/cJSON.h")
    if system.exists:
        ctx.symlink(system, "include/cjson/cJSON.h")
        ctx.symlink(ctx.attr._system_build_file, "BUILD")
        return
    ctx.download_and_extract(
        sha256 = "5308fd4bd90cef7aa060558514de6a1a4a0819974a26e6ed13973c5f624c24b2",
        stripPrefix = "cJSON-1.7.15",
        url = [
            "https://github.com/DaveGamble/cJSON/archive/refs/tags/v1.7.15.tar.gz",
        ],
    )
    ctx.symlink(ctx.attr._build_file, "BUILD")

cjson = repository_rule(
    implementation = _cjson_impl,
    attrs = {
        "_build_file": attr.label(default = "//tools/bazel/third_party:cjson.BUILD"),
        "_system_build_file": attr.label(default = "//tools/bazel/third_party:cjson_system.BUILD"),
    },
)
