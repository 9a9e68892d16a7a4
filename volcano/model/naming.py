# SPDX-License-Identifier: Apache-2.0
"""What Kubernetes calls a name, a label and its value: what is wrong with a text that shall be one.

Source: k8s.io/apimachinery 0.35 (pkg/util/validation, pkg/api/validate/content). The sentences are theirs.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from kfp_volcano.volcano.model.structural import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "LONGEST_LABEL",
    "choice_faults",
    "key_faults",
    "label_faults",
    "subdomain_faults",
    "too_long",
    "value_faults",
]

LONGEST_LABEL = 63
"""The most characters of a DNS label, and of a label's key and value."""

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_KEY})?"
_LONGEST_SUBDOMAIN = 253


def label_faults(text: str) -> list[str]:
    """What is wrong with a DNS label (IsDNS1123Label)."""
    faults = too_long(text, LONGEST_LABEL, "characters")
    if re.fullmatch(_LABEL, text):
        return faults
    if re.fullmatch(_SUBDOMAIN, text):
        return [*faults, "must not contain dots"]
    sentence = (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-',"
        " and must start and end with an alphanumeric character"
    )
    return [*faults, _unlike(sentence, _LABEL, "my-name", "123-abc")]


def subdomain_faults(text: str, unit: str = "characters") -> list[str]:
    """What is wrong with a DNS subdomain (IsDNS1123Subdomain)."""
    faults = too_long(text, _LONGEST_SUBDOMAIN, unit)
    if re.fullmatch(_SUBDOMAIN, text):
        return faults
    sentence = (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.',"
        " and must start and end with an alphanumeric character"
    )
    return [*faults, _unlike(sentence, _SUBDOMAIN, "example.com")]


def key_faults(text: str) -> list[str]:
    """What is wrong with the key of a label: a name, perhaps after a DNS subdomain and `/` (IsLabelKey)."""
    *prefix, name = text.split("/")
    if len(prefix) > 1:
        sentence = (
            "a valid label key must consist of alphanumeric characters, '-', '_' or '.',"
            " and must start and end with an alphanumeric character"
        )
        optional = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"{_unlike(sentence, _KEY, 'MyName', 'my.name', '123-abc')} {optional}"]
    faults = []
    for part in prefix:
        faults += [f"prefix part {each}" for each in (subdomain_faults(part, "bytes") if part else [_EMPTY])]
    if not name:
        faults.append(f"name part {_EMPTY}")
    faults += [f"name part {each}" for each in too_long(name, LONGEST_LABEL, "bytes")]
    if not re.fullmatch(_KEY, name):
        sentence = (
            "must consist of alphanumeric characters, '-', '_' or '.',"
            " and must start and end with an alphanumeric character"
        )
        faults.append(f"name part {_unlike(sentence, _KEY, 'MyName', 'my.name', '123-abc')}")
    return faults


def value_faults(text: str) -> list[str]:
    """What is wrong with a label's value (IsLabelValue)."""
    faults = too_long(text, LONGEST_LABEL, "bytes")
    if re.fullmatch(_VALUE, text):
        return faults
    sentence = (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.',"
        " and must start and end with an alphanumeric character"
    )
    return [*faults, _unlike(sentence, _VALUE, "MyValue", "my_value", "12345")]


_EMPTY = "must be non-empty"


def too_long(text: str, most: int, unit: str) -> list[str]:
    """The sentence on a text of more than so many; one half of Kubernetes counts bytes, the other characters."""
    return [f"must be no more than {most} {unit}"] if len(text) > most else []


def choice_faults(value: str, supported: Sequence[str], at: str) -> Iterator[Fault]:
    """The fault of a word that is none of those that are known (field.NotSupported)."""
    if value not in supported:
        listed = ", ".join(map(json.dumps, supported))
        yield Fault(at, f"Unsupported value: {json.dumps(value)}: supported values: {listed}")


def _unlike(sentence: str, pattern: str, *examples: str) -> str:
    listed = " or ".join(f"'{each}', " for each in examples)
    return f"{sentence} (e.g. {listed}regex used for validation is '{pattern}')"
