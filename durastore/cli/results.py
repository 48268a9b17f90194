"""What is stored of a command that ran: its exit code and its output, byte for byte."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, NamedTuple

__all__ = ["Result"]


class Result(NamedTuple):
    """A command's exit code and output."""

    exit_code: int
    stdout: bytes
    stderr: bytes

    def to_json(self) -> dict[str, Any]:
        """``exit_code``, ``stdout`` and ``stderr``; output that is not UTF-8 as ``stdout_base64`` or ``stderr_base64``."""
        return {"exit_code": self.exit_code, **_encoded("stdout", self.stdout), **_encoded("stderr", self.stderr)}

    @staticmethod
    def of(value: Any) -> Result:
        """A stored value as a result. One that no command left (a program's, or a person's) is output in JSON, with code 0."""
        if isinstance(value, dict) and value and type(value.get("exit_code", 0)) is int and _NAMES.issuperset(value):
            try:
                return Result(value.get("exit_code", 0), _decoded("stdout", value), _decoded("stderr", value))
            except (TypeError, AttributeError, binascii.Error):
                pass
        return Result(0, json.dumps(value).encode() + b"\n", b"")


_NAMES = frozenset({"exit_code", "stdout", "stderr", "stdout_base64", "stderr_base64"})


def _encoded(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _decoded(name: str, value: dict[str, Any]) -> bytes:
    if f"{name}_base64" in value:
        return base64.b64decode(value[f"{name}_base64"], validate=True)
    text: str = value.get(name, "")
    return text.encode("utf-8", "surrogatepass")
