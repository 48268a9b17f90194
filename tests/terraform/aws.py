"""Where Amazon's provider comes from: a filesystem mirror that lies on the machine, else as Terraform is configured."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tests.terraform.google import NotHere
from tests.terraform.runner import Terraform

__all__ = ["MIRROR", "provider"]

MIRROR = "DURASTORE_AWS_PROVIDER_MIRROR"
"""Environment variable: a filesystem mirror that holds the provider."""
_USUAL = (
    "~/.terraform.d/plugins",
    "~/.local/share/terraform/plugins",
    "/usr/local/share/terraform/plugins",
    "/usr/share/terraform/plugins",
)
_HASTE = {"TF_REGISTRY_CLIENT_TIMEOUT": "10", "TF_REGISTRY_DISCOVERY_RETRY": "0"}


def provider(program: str, versions: Path, scratch: Path) -> dict[str, str]:
    """The environment in which ``terraform init`` gets the provider that `versions` asks for. Raises `NotHere`."""
    (scratch / "versions.tf").write_text(versions.read_text())
    said = "Terraform has not been asked"
    for environment in [*_from_mirrors(scratch), _HASTE]:
        done = Terraform(program, scratch, environment).attempt("init", "-no-color")
        if done.returncode == 0:
            return environment
        said = " ".join(done.stderr.split())[:300]
    raise NotHere(f"no terraform-provider-aws in the usual folders or below /opt (${MIRROR} may name one): {said}")


def _from_mirrors(scratch: Path) -> Iterator[dict[str, str]]:
    given = [os.environ.get(name) for name in (MIRROR, "TF_PLUGIN_CACHE_DIR")]
    folders = [Path(folder).expanduser() for folder in [*given, *_USUAL] if folder]
    for folder in [*folders, *sorted(Path("/opt").glob("*")), *sorted(Path("/opt").glob("*/*"))]:
        if next(folder.glob("*/hashicorp/aws/*/*/terraform-provider-aws_*"), None):
            configuration = scratch / "terraformrc"
            text = f'provider_installation {{\n  filesystem_mirror {{\n    path = "{folder}"\n  }}\n}}\n'
            configuration.write_text(text)
            yield {"TF_CLI_CONFIG_FILE": str(configuration)}
