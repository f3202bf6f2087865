"""A wheel, whose name has the platform in it that its libraries turn out to need: a folder with one file."""

def _wheel_impl(ctx):
    folder = ctx.actions.declare_directory(ctx.label.name)
    include = [f for f in ctx.files.headers if f.path.endswith("cgr/base.h")][0].dirname[:-len("/cgr")]
    ctx.actions.run_shell(
        inputs = ctx.files.srcs + ctx.files.headers + ctx.files.notices + [ctx.file.library, ctx.file.validation],
        outputs = [folder],
        command = "python3 -B %s/wheel.py --include %s --library %s --validation %s --out %s --licenses %s >/dev/null" % (
            ctx.label.package,
            include,
            ctx.file.library.path,
            ctx.file.validation.path,
            folder.path,
            " ".join([f.path for f in ctx.files.notices]),
        ),
        mnemonic = "Wheel",
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([folder]))]

wheel = rule(
    attrs = {
        "headers": attr.label_list(allow_files = True),
        "library": attr.label(allow_single_file = True),
        "notices": attr.label_list(allow_files = True), # `licenses` is a name of Bazel's
        "srcs": attr.label_list(allow_files = True),
        "validation": attr.label(allow_single_file = True),
    },
    implementation = _wheel_impl,
)
