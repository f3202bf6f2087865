load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

CC_TOOLCHAIN_TYPE = "@bazel_tools//tools/cpp:toolchain_type"

CC_TOOLCHAIN_ATTRS = {"_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain")}

def find_cc_toolchain(ctx):
    return find_cpp_toolchain(ctx)

def use_cc_toolchain():
    return [CC_TOOLCHAIN_TYPE]
