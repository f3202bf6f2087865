"""What a call raises when cgr refuses it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .enums import Status

if TYPE_CHECKING:
    from ._cgr import Finding, StepResult


class CgrError(RuntimeError):
    """A status of cgr that is not OK.

    status       the cgr.Status
    message      names the function, the argument, what it got and what it expected
    device_code  of the device's own API, 0 if there was none
    findings     of a configuration, a self-test or an audit: every reason
    result       of Status.ERROR_STEP: the step's result, whose guard says what was refused
    """

    result: StepResult | None = None

    def __init__(
        self, status: int, message: str = "", device_code: int = 0, findings: Iterable[Finding] | None = None
    ) -> None:
        try:
            self.status = Status(status)
        except ValueError:  # one that this version does not know
            self.status = status  # type: ignore[assignment]
        super().__init__(f"{getattr(self.status, 'name', status)}: {message}")
        self.message = message
        self.device_code = device_code
        self.findings: list[Finding] = []
        self.take_findings(findings or ())

    def take_findings(self, findings: Iterable[Finding]) -> None:
        """Keeps them, and shows them below the message if they are several."""
        self.findings = list(findings)
        for finding in self.findings[:16] if len(self.findings) > 1 else ():
            self.add_note(f"  {finding.field}: {finding.text}")


class Address(int):
    """An address in memory, taken on trust: plain integers are no pointers here, so that a number by mistake is refused."""

    def __repr__(self) -> str:
        return f"cgr.Address({int(self):#x})"
