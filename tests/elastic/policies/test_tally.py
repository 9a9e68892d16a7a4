# SPDX-License-Identifier: Apache-2.0
"""A tally says what a draft would say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.policies.draft import Spot
from kfp_volcano.elastic.policies.room import Room
from kfp_volcano.elastic.policies.snapshot import NOWHERE, UNUSABLE
from kfp_volcano.elastic.policies.tally import Tally

spots = st.builds(
    lambda now, coming, fits: Spot(now, now + coming, fits),
    st.integers(0, 4),
    st.integers(0, 4),
    st.just(()) | st.integers(0, 4).map(lambda most: (("a", most),)),
)
steps = st.tuples(st.sampled_from(["n0", "n1", "n2", NOWHERE, UNUSABLE]), st.integers(1, 3), st.sampled_from(["", "a"]))


@given(
    st.lists(spots, min_size=3, max_size=3),
    st.integers(0, 10),
    st.lists(steps, max_size=6),
    st.integers(0, 6),
    st.sampled_from(["", "a"]),
    st.integers(1, 3),
    st.booleans(),
)
def test_it_counts_what_fits_as_jobs_give_and_have_back(nodes, limit, given_up, back, shape, gpus, own):
    """After every step, of what is short of something else too."""
    draft = Room(limit, limit + 2, {f"n{at}": spot for at, spot in enumerate(nodes)}).draft()
    tally = Tally(draft, shape, gpus, own=own)
    for node, each, of in given_up:
        draft.give((node,), each, of)
        tally.give((node,), each, of)
        assert tally.workers == draft.workers(shape, gpus, later=True, own=own)
    for node, each, of in given_up[back:]:
        draft.give_back((node,), each, of)
        tally.give_back((node,), each, of)
        assert tally.workers == draft.workers(shape, gpus, later=True, own=own)
