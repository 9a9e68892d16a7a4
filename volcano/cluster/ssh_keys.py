# SPDX-License-Identifier: Apache-2.0
"""SSH keys of Jobs on the embedded cluster, made by OpenSSH's own tool."""

from __future__ import annotations

import logging
import subprocess
import tempfile
from pathlib import Path

__all__ = ["KEYGEN", "ssh_keys"]

KEYGEN = "ssh-keygen"

_log = logging.getLogger(__name__)


def ssh_keys() -> tuple[str, str]:
    """A new RSA key pair, private and public; empty where the tool is missing, which `preflight` tells before."""
    with tempfile.TemporaryDirectory(prefix="kfp-volcano-keys-") as folder:
        key = Path(folder) / "key"
        command = [KEYGEN, "-q", "-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "", "-C", "kfp-volcano", "-f", str(key)]
        try:
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            _log.error("cannot make keys for ssh: %s", error)
            return "", ""
        return key.read_text(), key.with_suffix(".pub").read_text()
