"""Parts of a report that several commands share."""

from xttsbench.workflows.reports.parts import endings


def test_what_the_trial_of_a_fix_noted_is_said_of_that_fix(build) -> None:
    noted = build.trial("arm", notes=("the cache was filled",))
    fixed = noted.model_copy(update={"spec": noted.spec.model_copy(update={"fix": "cache@Map/_1"})})
    assert endings([noted, fixed]) == ["the cache was filled", "with cache@Map/_1: the cache was filled"]
