"""``distribute(...)`` behind the last op that can leave, with the dispatcher's address from the environment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xttsbench.fixes.service import ADDRESS
from xttsbench.fixes.service.leaving import leaving
from xttsbench.targets.source.calls import Calls, attempt, place
from xttsbench.targets.source.edits import Change, Found, NoEditError, Replacement
from xttsbench.targets.source.link_edits import appended, change, spelled


def distribute(calls: Calls, number: int | None, op: str) -> Iterable[Found]:
    """The call of ``distribute``, and ``import os`` where the file does not say it."""
    found = leaving(calls.pipeline)
    last = next((one for one in calls.pipeline.ops if one.name == found.after), None)
    if last is None:
        return [Found(why_not=found.refused or "nothing of the pipeline can leave")]

    def edit() -> Sequence[Change]:
        module, link = calls.maker(last)
        service = spelled(module, link.node, "data.experimental.service")
        text = (
            f'.apply({service}.distribute({service}.ShardingPolicy.DYNAMIC, os.environ["{ADDRESS}"], compression=None))'
        )
        steps = appended(module, link, text).steps
        bound = module.assignments("os", link.node)
        named = {found.name for one in bound for found in one.get_qualified_names_for("os")}
        if named - {"os"}:
            raise NoEditError(f"{module.file} has another os than Python's, which the address would be read with")
        if not named:
            statement = module.start(module.statement(link.node))
            at = module.line_start(statement)
            steps = (Replacement(at, at, f"{module.indent(statement)}import os{module.line_end}"), *steps)
        return [change(module, link, *steps)]

    return [attempt(edit, f"write .apply(tf.data.experimental.service.distribute(...)) behind {place(last)}")]
