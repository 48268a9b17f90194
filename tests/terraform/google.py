"""Where Google's provider comes from: the real one by ``terraform init``, else a stand-in that has its schema and no cloud."""

from __future__ import annotations

import os
from pathlib import Path

from tests.terraform.runner import Terraform

__all__ = ["MIRROR", "NotHere", "real", "stand_in"]

MIRROR = "DURASTORE_GOOGLE_PROVIDER_MIRROR"
"""Environment variable: the filesystem mirror that holds the stand-in."""
_HASTE = {"TF_REGISTRY_CLIENT_TIMEOUT": "10", "TF_REGISTRY_DISCOVERY_RETRY": "0"}


class NotHere(Exception):
    """There is no such provider on this machine; says why."""


def real(program: str, versions: Path, scratch: Path) -> dict[str, str]:
    """The environment in which ``terraform init`` gets the real provider that `versions` asks for."""
    (scratch / "versions.tf").write_text(versions.read_text())
    done = Terraform(program, scratch, _HASTE).attempt("init", "-no-color")
    if done.returncode:
        raise NotHere(" ".join(done.stderr.split())[:300])
    return dict(_HASTE)


def stand_in(scratch: Path) -> dict[str, str]:
    """The environment in which ``terraform init`` gets the stand-in, and nothing else."""
    mirror = os.environ.get(MIRROR)
    if not mirror:
        raise NotHere(f"{MIRROR} names no folder")
    if not list(Path(mirror).glob("registry.terraform.io/hashicorp/google/*/*/terraform-provider-google*")):
        raise NotHere(f"{mirror} ({MIRROR}) holds no hashicorp/google")
    configuration = scratch / "terraformrc"
    configuration.write_text(f'provider_installation {{\n  filesystem_mirror {{\n    path = "{mirror}"\n  }}\n}}\n')
    return {"TF_CLI_CONFIG_FILE": str(configuration)}
