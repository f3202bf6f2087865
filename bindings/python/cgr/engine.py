"""Device and Runtime, which take the fields of their configuration as keywords."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar

from . import _cgr
from .errors import CgrError

_Struct = TypeVar("_Struct", _cgr.Config, _cgr.DeviceConfig, _cgr.Capture)
_Recorded = Callable[[_cgr.Recorder], object] | _cgr.Capture


class Device(_cgr.DeviceHandle):
    __doc__ = _cgr.DeviceHandle.__doc__

    def __new__(cls, name: str | None = None, config: _cgr.DeviceConfig | None = None, **fields: Any) -> Self:
        if fields:
            config = _fields_over(_cgr.DeviceConfig, config, fields)
        return super().__new__(cls, name, config)

    def __init__(self, *_args: Any, **_fields: Any) -> None:
        super().__init__()

    def __repr__(self) -> str:
        return "<cgr.Device, closed>" if self.closed else f"<cgr.Device {self.info().name!r}>"


class Runtime(_cgr.RuntimeHandle):
    __doc__ = _cgr.RuntimeHandle.__doc__

    def __new__(cls, config: _cgr.Config | None = None, **fields: Any) -> Self:
        if isinstance(fields.get("device"), _cgr.DeviceHandle):
            fields["device_handle"] = fields.pop("device")
        config = _fields_over(_cgr.Config, config, fields)
        try:
            return super().__new__(cls, config)
        except CgrError as error:
            if not error.findings:
                error.take_findings(_findings(config))
            raise

    def __init__(self, *_args: Any, **_fields: Any) -> None:
        super().__init__()

    def __repr__(self) -> str:
        if self.closed:
            return "<cgr.Runtime, closed>"
        config = self.config
        return f"<cgr.Runtime of {config.max_requests} requests, {config.max_tokens} tokens, {config.num_layers} layers>"

    def capture(self, record: _Recorded, **fields: Any) -> None:  # type: ignore[override]
        """Captures graphs: of a function `record(recorder)` and the other fields of cgr.Capture, or of a cgr.Capture.

        """
        super().capture(_capture(record, fields))

    def warmup(self, record: _Recorded, **fields: Any) -> None:  # type: ignore[override]
        """Calls `record` eagerly, once for every key. Arguments as those of capture.

        """
        super().warmup(_capture(record, fields))

    def estimate_capture(self, record: _Recorded, **fields: Any) -> _cgr.CaptureEstimate:  # type: ignore[override]
        """Estimates what captures take. Arguments as those of capture.

        """
        return super().estimate_capture(_capture(record, fields))


for _name in ("capture", "warmup", "estimate_capture"):
    getattr(Runtime, _name).__doc__ += getattr(_cgr.RuntimeHandle, _name).__doc__.partition("--\n\n")[2] or getattr(
        _cgr.RuntimeHandle, _name
    ).__doc__


def _capture(record: _Recorded, fields: dict[str, Any]) -> _cgr.Capture:
    if isinstance(record, _cgr.Capture):
        return _fields_over(_cgr.Capture, record, fields)
    return _cgr.Capture(record=record, **fields)


def _fields_over(struct: type[_Struct], given: _Struct | None, fields: dict[str, Any]) -> _Struct:
    """The struct that was given, or a copy with other fields."""
    if given is None:
        return struct(**fields)
    if not fields:
        return given
    if not isinstance(given, struct):
        raise TypeError(f"expected {struct.__name__}, got {type(given).__name__}")
    copy = given.copy()
    for name, value in fields.items():
        if not hasattr(copy, name):
            raise TypeError(f"{struct.__name__} has no field {name!r}")
        setattr(copy, name, value)
    return copy


def _findings(config: _cgr.Config) -> list[_cgr.Finding]:
    try:
        return _cgr.validate(config)
    except Exception:  # the first error is the one to see
        return []
