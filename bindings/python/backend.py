"""What pip calls for `pip wheel .`: scikit-build-core, whose wheel gets the platform that its libraries turn out to need."""

import os

from scikit_build_core import build
from scikit_build_core.build import *  # noqa: F403  the other hooks, as they are

import wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    made = build.build_wheel(wheel_directory, config_settings, metadata_directory)
    return os.path.basename(wheel.name_platform(os.path.join(wheel_directory, made)))
