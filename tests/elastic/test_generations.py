# SPDX-License-Identifier: Apache-2.0
"""Generations: who trains together, whatever comes, goes, or is lost."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.generations import FINISHED, HERE, LEAVING, Generation, Generations, Member, Sign


def member(index, *, role="worker", task="core", incarnation="1"):
    return Member(
        pod=f"{task}-{index}", incarnation=incarnation, host=f"10.0.0.{index}", role=role, task=task, index=index
    )


def fresh(least=2, roles=None):
    return Generations(roles or {}, "worker", least)


def say(generations, now, *members, event=HERE, running=None):
    for each in members:
        generations.heard(Sign(member=each, event=event, running=running), now)


def started(size=3, least=2):
    generations = fresh(least)
    members = [member(index) for index in range(size)]
    say(generations, 0.0, *members)
    assert generations.at(1.0).number == 1
    return generations, members


def test_many_who_come_together_make_one_generation():
    """A generation is made once it was quiet for the settle time, its members in order."""
    generations = fresh()
    for number, index in enumerate((2, 10, 0)):
        say(generations, 0.5 * number, member(index))
        assert generations.at(0.5 * number).number == 0
    assert generations.at(1.9).number == 0
    made = generations.at(2.0)
    assert (made.number, [each.index for each in made.members]) == (1, [0, 2, 10])
    assert generations.at(9.0) is made


def test_endless_arrivals_do_not_keep_a_generation_from_being_made():
    """After some settle times one is made with those who are there."""
    generations = fresh()
    for tenth in range(60):
        say(generations, tenth / 10, *(member(index) for index in range(tenth + 1)))
        generations.at(tenth / 10)
    assert generations.generation.number >= 1


def test_too_few_are_no_generation():
    """Below the least number, or without a role's pods, nobody runs; and those who ran stop."""
    generations = fresh(2, {"chief": 1})
    say(generations, 0.0, member(0), member(1))
    assert generations.at(5.0).number == 0
    say(generations, 5.0, member(0, role="chief", task="chief"))
    made = generations.at(6.0)
    assert [each.role for each in made.members] == ["chief", "worker", "worker"]
    say(generations, 7.0, member(1), event=LEAVING)
    assert (generations.at(8.0).number, generations.at(8.0).members) == (2, ())


def test_who_leaves_who_is_lost_and_who_began_anew_change_the_generation():
    """Each makes a new one without, or with, it."""
    generations, members = started(4)
    say(generations, 2.0, members[3], event=LEAVING)
    assert [each.index for each in generations.at(3.0).members] == [0, 1, 2]
    say(generations, 10.0, members[0], members[1])
    assert len(generations.at(10.0).members) == 3
    assert [each.index for each in (generations.at(11.0), generations.at(12.0))[1].members] == [0, 1]
    again = replace(members[1], incarnation="2")
    say(generations, 13.0, members[0], again)
    assert generations.at(14.0).members == (members[0], again)


def test_a_late_word_of_one_that_began_anew_is_not_about_its_successor():
    """The leaving of a former incarnation changes nothing."""
    generations, members = started()
    say(generations, 2.0, replace(members[0], incarnation="2"))
    made = generations.at(3.0)
    say(generations, 4.0, members[0], event=LEAVING)
    assert generations.at(6.0) is made


def test_one_that_finished_does_not_disturb_the_others():
    """Nor does its silence; and the others are enough with it."""
    generations, members = started(2)
    say(generations, 2.0, members[0], event=FINISHED)
    say(generations, 20.0, members[1])
    assert generations.at(22.0).number == 1
    say(generations, 23.0, replace(members[1], incarnation="2"))
    made = generations.at(24.0)
    assert (made.number, [each.index for each in made.members], made.finished) == (2, [1], ("core-0",))


def test_a_coordinator_that_begins_anew_goes_on_from_what_it_hears():
    """If all report no generation is made; one that does not report is lost as ever."""
    generations, members = started()
    running = generations.generation
    heir = fresh()
    for at, who in ((0.0, members[:1]), (5.0, members)):
        say(heir, at, *who, running=running)
        assert heir.at(at + 2.0) == running
    other = fresh()
    say(other, 0.0, *members[:2], running=running)
    say(other, 9.0, *members[:2], running=running)
    other.at(10.0)
    assert (other.at(11.0).number, len(other.at(11.0).members)) == (2, 2)
    unaware = fresh()
    say(unaware, 0.0, member(7), running=None)
    say(unaware, 0.1, *members, running=running)
    assert (unaware.at(1.5).number, len(unaware.at(1.5).members)) == (2, 4)


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 3.0), st.integers(0, 4), st.sampled_from([HERE, HERE, HERE, LEAVING, FINISHED]),
            st.integers(1, 2),
        ),
        max_size=40,
    )
)  # fmt: skip
def test_numbers_only_grow_and_a_generation_is_complete_or_empty(steps):
    """Whatever is told and when, a generation has the least number of members with those that finished, or none."""
    generations, now, last = fresh(), 0.0, Generation(number=0)
    for wait, index, event, incarnation in steps:
        now += wait
        say(generations, now, member(index, incarnation=str(incarnation)), event=event)
        made = generations.at(now)
        assert made.number in (last.number, last.number + 1)
        assert made.number > last.number or made.members == last.members
        assert not made.members or len(made.members) + len(made.finished) >= 2
        last = made
