# SPDX-License-Identifier: Apache-2.0
"""A converted job as text: its spec as people write YAML, its account, and a name for its files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

from kfp_volcano.volcano.manifests.convert.report import markdown, text

if TYPE_CHECKING:
    from kfp_volcano.volcano.manifests.convert.conversion import Converted

__all__ = ["Names", "report", "spec_text"]

_WIDTH = 120
_BREAKS = re.compile("[\\r\\x85\\u2028\\u2029]")


class Names:
    """Names of files, each given once: two jobs may have one name."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def free(self, name: str) -> str:
        """The name, or the name with the first number that nobody has."""
        number, found = 1, name
        while found in self._taken:
            number += 1
            found = f"{name}-{number}"
        self._taken.add(found)
        return found


def spec_text(converted: Converted, account: str = "") -> str:
    """The TrainingJob as YAML; `account` is the file that says what became of the manifest's fields."""
    head = f"# The {converted.kind} of {' '.join(converted.source.split())}, converted by kfp-volcano"
    head += f"; what differs: {account}\n" if account else "\n"
    body: str = yaml.dump(converted.spec, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return head + body


def report(converted: Converted, *, page: bool = False) -> str:
    """The account of the manifest's fields: for a terminal, or as a page with those that were kept too."""
    title = f"{converted.kind} {converted.name}: from {converted.source}"
    return (markdown if page else text)(title, converted.entries)


class _Dumper(yaml.SafeDumper):
    """Programs on several lines stay readable; nothing is written as an alias of something before."""

    def ignore_aliases(self, data: Any) -> bool:
        """Whether to write a value out again."""
        del data
        return True


def _represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    # PyYAML writes the line breaks of other alphabets as they are, and reads them as if they were "\n".
    style = '"' if _BREAKS.search(value) else "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _represent_text)
