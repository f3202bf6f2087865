"""What a call raises when cgr refuses it."""

from .enums import Status


class CgrError(RuntimeError):
    """A status of cgr that is not OK.

    status       the cgr.Status
    message      names the function, the argument, what it got and what it expected
    device_code  of the device's own API, 0 if there was none
    findings     of a configuration, a self-test or an audit: every reason
    result       of Status.ERROR_STEP: the step's result, whose guard says what was refused
    """

    result = None

    def __init__(self, status, message="", device_code=0, findings=None):
        try:
            status = Status(status)
        except ValueError:
            pass
        super().__init__(f"{getattr(status, 'name', status)}: {message}")
        self.status = status
        self.message = message
        self.device_code = device_code
        self.findings = []
        self.take_findings(findings or ())

    def take_findings(self, findings):
        """Keeps them, and shows them below the message if they are several."""
        self.findings = list(findings)
        for finding in self.findings[:16] if len(self.findings) > 1 else ():
            self.add_note(f"  {finding.field}: {finding.text}")


class Address(int):
    """An address in memory, taken on trust: plain integers are no pointers here, so that a number by mistake is refused."""

    def __repr__(self):
        return f"cgr.Address({int(self):#x})"
