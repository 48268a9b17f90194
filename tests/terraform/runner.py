"""Terraform in a copy of one folder, so that nothing is left in the repository."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Terraform"]

TIMEOUT = 300
"""Seconds that one command may take."""
_QUIET = {"CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1", "TF_INPUT": "0"}


@dataclass(frozen=True)
class Terraform:
    """The program, the folder in which it runs, and the environment that says where providers come from."""

    program: str
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def at(self, folder: str) -> Terraform:
        """The same in a folder below."""
        return Terraform(self.program, self.folder / folder, self.environment)

    def attempt(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command, whatever comes of it."""
        command = [self.program, f"-chdir={self.folder}", *arguments]
        environment = {**os.environ, **_QUIET, **self.environment}
        return subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def __call__(self, *arguments: str) -> str:
        """Run a command that must work; its output."""
        done = self.attempt(*arguments)
        assert done.returncode == 0, f"terraform {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def state(self) -> dict[str, Any]:
        """What was applied: ``outputs`` by name, and ``resources`` by address."""
        shown = json.loads(self("show", "-json")).get("values", {})
        modules = [shown.get("root_module", {})]
        for module in modules:
            modules += module.get("child_modules", [])
        return {
            "outputs": {name: output["value"] for name, output in shown.get("outputs", {}).items()},
            "resources": {one["address"]: one["values"] for module in modules for one in module.get("resources", [])},
        }
