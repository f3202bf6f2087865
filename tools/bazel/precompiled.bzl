"""A header that is compiled once: half of a test's compile time goes into what all tests include."""

load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

_COMPILE = "c++-compile" # the name that rules_cc has for the action

def _precompiled_header_impl(ctx):
    header = ctx.actions.declare_file(ctx.attr.out)
    ctx.actions.write(header, "".join(["#include \"%s\"\n" % name for name in ctx.attr.includes]))
    read = cc_common.merge_cc_infos(cc_infos = [d[CcInfo] for d in ctx.attr.deps]).compilation_context
    toolchain = find_cc_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    precompiled = ctx.actions.declare_file(ctx.attr.out + ".gch")
    cpp = ctx.fragments.cpp
    variables = cc_common.create_compile_variables(
        cc_toolchain = toolchain,
        feature_configuration = features,
        source_file = header.path,
        output_file = precompiled.path,
        user_compile_flags = ctx.attr.copts + cpp.copts + cpp.cxxopts + ["-x", "c++-header"],
        include_directories = read.includes,
        quote_include_directories = read.quote_includes,
        system_include_directories = read.system_includes,
        preprocessor_defines = read.defines,
        use_pic = True,
    )
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(feature_configuration = features, action_name = _COMPILE),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = _COMPILE,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = _COMPILE,
            variables = variables,
        ),
        inputs = depset([header], transitive = [read.headers, toolchain.all_files]),
        outputs = [precompiled],
        mnemonic = "CgrPrecompile",
        progress_message = "Precompiling %s" % header.short_path,
    )
    files = depset([header, precompiled])
    context = cc_common.create_compilation_context(headers = files, system_includes = depset([header.dirname]))
    return [DefaultInfo(files = files), CcInfo(compilation_context = context)]

# `copts` are those of the files that include it (-include): with others, the compiler reads the header itself.
precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "copts": attr.string_list(),
        "deps": attr.label_list(doc = "where the included headers are", providers = [CcInfo]),
        "includes": attr.string_list(doc = "names of headers"),
        "out": attr.string(doc = "the header's file", mandatory = True),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = use_cc_toolchain(),
)
