# SPDX-License-Identifier: Apache-2.0
"""Texts that break what is not built for them: quotes, line breaks, YAML, Jinja, unicode, sizes, unfit names."""

from __future__ import annotations

from hypothesis import strategies as st

__all__ = ["HOSTILE", "LONG", "hostile", "near_misses"]

HOSTILE = (
    "",
    " ",
    "'",
    '"',
    "''\"\"'",
    "\\",
    '\\"',
    "a\nb",
    "\n",
    "a\r\nb",
    "\ttab",
    "a: b",
    "- a",
    "key: {nested: [1, 2]}",
    "} ]",
    "{{ 7 * 7 }}",
    "{% for x in y %}",
    "{# comment",
    "{{ cycler.__init__.__globals__ }}",
    "${HOME} $(HOME) $$(HOME) `id`",
    "%s %(a)s {0} {a}",
    "# comment",
    "a #b",
    "&anchor",
    "*alias",
    "!!python/object/apply:os.system [id]",
    "---",
    "--- |\n  a\n...\n",
    "? a\n: b",
    "|",
    ">-",
    "@at",
    "null",
    "~",
    "true",
    "No",
    "0o17",
    "1e3",
    "1_000",
    "0x10",
    ".inf",
    ".nan",
    "12:30:45",
    "2020-01-01",
    "<<",
    "=",
    "ünïcödé",
    "日本語",
    "👩‍🚀🚀",
    "\u0085next line",
    "\u2028\u2029",
    "\ufeffbom",
    "\u202eright to left",
    "\x01\x1f\x7f",
    "e\u0301 é",
    "\uff11\uff12",  # digits of full width
    "\u0130\u0131\u017f\u212a",  # letters that fold to ASCII
    "../../etc/passwd",
    "/absolute",
    "a/b",
    "UPPER",
    "under_score",
    "-leading",
    "trailing-",
    ".dot",
    "a..b",
    "a.b",
    "a-.b",
    "0digit",
    "name\n",
    " name",
    "name ",
    "a" * 62,
    "a" * 63,
    "a" * 64,
    "a" * 253,
    "a" * 254,
    ("a" * 63 + ".") * 3 + "a" * 61,
    "-1",
    "+1",
    "1.",
    ".5",
    "1.5Gi",
    "1ki",
    "1E",
    "1e400",
    "1e-400",
    "10000000000000000000000Ei",
    "1 Gi",
    "0",
    "kubernetes.io/x",
    "example.com/",
    "/x",
    "a//b",
    "default",
    "root",
)
"""Each of them has broken some program that took text for harmless."""

LONG = ("x" * 100_000, "ü\n'\"{{ }}: " * 10_000)
"""Texts of 100 kB and more."""


def hostile() -> st.SearchStrategy[str]:
    """Hostile texts, alone and joined, and any text that JSON and UTF-8 can carry."""
    some = st.sampled_from(HOSTILE)
    return st.one_of(some, some, st.tuples(some, some).map("".join), _anything())


def near_misses(text: str) -> list[str]:
    """Texts that differ from a good one by little."""
    middle = len(text) // 2
    return [
        text.upper(),
        text + "\n",
        " " + text,
        text + ".",
        "-" + text,
        text + "_",
        text[:middle] + ".." + text[middle:],
        text[:middle] + "é" + text[middle:],
        text * 70,
        "",
    ]


def _anything() -> st.SearchStrategy[str]:
    return st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=40)
