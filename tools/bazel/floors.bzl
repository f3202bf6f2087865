"""The floors of the house, from the ground up. Bazel, CMake, tests/house and the README's table all follow this list."""

# A folder, and the folders that its files may include from besides their own. The first line that a file's path begins with is the file's.
FLOORS = [
    "include/:",
    "base/: include/",
    "devices/cuda/: include/ base/ devices/",
    "devices/host/: include/ base/ devices/",
    "devices/shims/: include/ devices/",
    "devices/: include/ base/",
    "buffers/: include/ base/",
    "requests/: include/ base/ buffers/",
    "planners/attention/: include/ base/",
    "planners/metadata/: include/ base/",
    "kernels/: include/ base/ devices/ buffers/ planners/",
    "interop/nccl/: include/ base/ runtime/",
    "interop/: include/ base/ devices/",
    "tracing/: include/ base/",
    "graphs/: include/ base/ devices/ buffers/ tracing/",
    "runtime/: include/ base/ devices/ buffers/ requests/ planners/ kernels/ graphs/ tracing/",
    "ranks/: include/ base/ runtime/",
]

# These see every floor: what is measured and what is tested, and the library that the top package puts together.
_WATCHERS = ["//", "//profiles/...", "//tests/..."]

def package_groups():
    """For each floor F a group above_F: the packages that may use it, for the `visibility` of its packages."""
    users = {}
    for line in FLOORS:
        folder, may = line.split(":")
        floor = folder.split("/")[0]
        for used in may.split(" ") + [floor]:
            if used:
                name = used.split("/")[0]
                users[name] = users.get(name, []) + ["//" + floor + "/..."]
    for floor, packages in users.items():
        native.package_group(
            name = "above_" + floor,
            packages = _WATCHERS + {p: None for p in packages}.keys(),
        )
