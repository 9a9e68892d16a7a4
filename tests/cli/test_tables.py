# SPDX-License-Identifier: Apache-2.0
"""Tables on the terminal."""

from __future__ import annotations

from kfp_volcano.cli.tables import print_table


def test_cells_are_printed_as_they_are(capsys):
    """What a cluster says may hold brackets, which are markup elsewhere."""
    print_table(("A", "WHY"), [("job", "unattached volumes=[/data], [bold]timed out")])
    assert "unattached volumes=[/data], [bold]timed out" in capsys.readouterr().out
