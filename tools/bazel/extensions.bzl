"""The repositories of repositories.bzl for MODULE.bazel (GoogleTest is a module of its own)."""

load(":repositories.bzl", "cjson", "local_cuda")

def _system_impl(_ctx):
    local_cuda(name = "local_cuda")
    cjson(name = "cjson")

system = module_extension(implementation = _system_impl)
