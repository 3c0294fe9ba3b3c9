"""Histories of pools that get another number of slots, of which it is known what they break."""

from chaos_known import breaks, keeps
from chaos_story import Grant, Story


def permit(story: Story, client: str, *, slot: int, slots: int) -> Grant:
    """A slot of the pool, granted at once."""
    return story.acquire(client, "k", mode="permit", slot=slot, slots=slots)


def resize(story: Story, slots: int, *, before: int, holders: int, **lies: object) -> None:
    """An administrator gives the pool so many slots. ``lies``: ``told``, what watchers hear; ``asked``."""
    detail = str(lies.get("told", slots))
    events = (story.event("resized", "k", "operator", 0, detail, "permit"),) if slots != before else ()
    told = {"slots": slots, "before": before, "holders": holders}
    fields = {"key": "k", "slots": slots, "actor": "operator"}
    story.effect("Resize", fields, "Resized", told, events)
    if lies.get("asked", True):
        story.call("operator", "resize", {"key": "k", "slots": slots}, answer=dict(told))


def conflict(story: Story, client: str, *, asked: int, present: int) -> None:
    """An acquire that names another number than the pool has."""
    answer = {"key": "k", "present": "permit", "present_slots": present}
    sent = {"key": "k", "owner": client, "mode": "permit", "slots": asked, "request_id": f"{client}-c"}
    story.call(client, "acquire", sent, outcome="refused", code="mode_conflict", answer=answer)


# -- 4: one holder at a time


@keeps(4)
def test_a_pool_that_has_grown_has_the_slots_that_it_was_given() -> Story:
    story = Story()
    permit(story, "a", slot=0, slots=1)
    resize(story, 3, before=1, holders=1)
    permit(story, "b", slot=1, slots=3)
    permit(story, "c", slot=2, slots=3)
    return story


@keeps(4)
def test_a_pool_that_has_shrunk_grants_when_there_is_room_and_the_lowest_slots() -> Story:
    story = Story()
    first, second, third = (permit(story, client, slot=slot, slots=3) for slot, client in enumerate("abc"))
    resize(story, 2, before=3, holders=3)
    story.renew(third)
    story.release(first)
    story.release(second)
    permit(story, "d", slot=0, slots=2)
    return story


@keeps(4)
def test_a_number_that_the_pool_has_is_given_again_without_a_word() -> Story:
    story = Story()
    permit(story, "a", slot=0, slots=2)
    resize(story, 2, before=2, holders=1)
    return story


@keeps(4)
def test_a_slot_beyond_the_number_is_handed_over_as_it_is() -> Story:
    story = Story()
    first, second = (permit(story, client, slot=slot, slots=2) for slot, client in enumerate("ab"))
    resize(story, 1, before=2, holders=2)
    story.hand_over(second, story.open_session("c"), "c", mode="permit", slot=1, slots=1)
    story.release(first)
    return story


@breaks(4)
def test_a_slot_beyond_the_new_number_is_granted() -> Story:
    story = Story()
    first, *_ = (permit(story, client, slot=slot, slots=3) for slot, client in enumerate("abc"))
    story.release(first)
    resize(story, 2, before=3, holders=2)
    permit(story, "d", slot=3, slots=2)
    return story


@breaks(4)
def test_a_permit_is_granted_while_more_are_out_than_the_pool_has_left() -> Story:
    story = Story()
    first, *_ = (permit(story, client, slot=slot, slots=3) for slot, client in enumerate("abc"))
    resize(story, 2, before=3, holders=3)
    story.release(first)
    permit(story, "d", slot=0, slots=2)
    return story


@breaks(4)
def test_who_names_the_number_of_before_is_granted() -> Story:
    story = Story()
    permit(story, "a", slot=0, slots=2)
    resize(story, 3, before=2, holders=1)
    permit(story, "b", slot=1, slots=2)
    return story


@breaks(4)
def test_a_pool_that_nobody_uses_is_resized() -> Story:
    story = Story()
    story.release(permit(story, "a", slot=0, slots=2))
    resize(story, 3, before=2, holders=0)
    return story


@breaks(4)
def test_a_pool_in_use_is_said_not_to_be() -> Story:
    story = Story()
    permit(story, "a", slot=0, slots=2)
    story.effect("Resize", {"key": "k", "slots": 3, "actor": "operator"}, "NotHeld")
    story.call("operator", "resize", {"key": "k", "slots": 3}, outcome="refused", code="not_held")
    return story


@breaks(4)
def test_watchers_hear_of_another_number() -> Story:
    story = Story()
    permit(story, "a", slot=0, slots=2)
    resize(story, 3, before=2, holders=1, told=4)
    return story


@breaks(4)
def test_an_administrator_is_told_of_fewer_holders() -> Story:
    story = Story()
    permit(story, "a", slot=0, slots=2)
    resize(story, 1, before=2, holders=0)
    return story


# -- 11: what failed has no effect, for true reasons


@keeps(11)
def test_who_names_the_number_of_before_is_told_the_new_one() -> Story:
    story = Story()
    permit(story, "a", slot=0, slots=2)
    resize(story, 3, before=2, holders=1)
    conflict(story, "b", asked=2, present=3)
    return story


@breaks(11)
def test_who_names_the_number_in_force_is_told_of_another() -> Story:
    story = Story()
    permit(story, "a", slot=0, slots=2)
    resize(story, 3, before=2, holders=1)
    conflict(story, "b", asked=3, present=2)
    return story


# -- 12: nothing without a request; 13: what was acknowledged stays


@breaks(12)
def test_a_pool_is_resized_that_nobody_asked_to_resize() -> Story:
    story = Story()
    permit(story, "a", slot=0, slots=2)
    resize(story, 3, before=2, holders=1, asked=False)
    return story


@breaks(13)
def test_an_administrator_is_told_of_a_number_that_no_entry_gave() -> Story:
    story = Story()
    permit(story, "a", slot=0, slots=2)
    answer = {"slots": 3, "before": 2, "holders": 1}
    story.call("operator", "resize", {"key": "k", "slots": 3}, answer=answer)
    return story


# -- 20: the healed cluster goes on


@breaks(20)
def test_who_waits_is_not_served_when_the_pool_grows() -> Story:
    story = Story()
    permit(story, "a", slot=0, slots=1)
    waiter = story.wait("b", "k")
    waiter.mode = "permit"
    story.effects[-1].fields.update(mode="permit", slots=1)
    story.effects[-1].events[0]["mode"] = "permit"
    resize(story, 2, before=1, holders=1)
    return story
