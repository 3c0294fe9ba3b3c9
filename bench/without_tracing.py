"""`tenured` with everything cut out that tracing has in the way of a call.

    python -m without_tracing run --config FILE       as `tenured`, from this folder

What it costs to have tracing and not to use it is the difference to the program as it is: see
metrics_cost.py --tracing.
"""

import ast
import inspect
import textwrap
from typing import Any, Final

from tenure_chaos.mutants.edits import Edit, edited, find
from tenure_cluster.cli import cli

CUTS: Final = (
    Edit(
        "tenure_cluster.api.app:HttpFront._handle",
        "if self._traces is None or not request.raw_path.startswith(_TRACED):",
        "if True:",
    ),
    Edit("tenure_cluster.api.app:HttpFront._handle_known", "if span is not None:", "if False:"),
    Edit("tenure_cluster.service.asks:Ask.__init__", "self.span = SPAN.get()", "pass"),
    Edit(
        "tenure_cluster.service.proposals:Proposer.ask",
        "hear = None if self.on_ask is None else self.on_ask(ask)",
        "hear = None",
    ),
    Edit(
        "tenure_cluster.raft.pump:Pump._append",
        'self._tell_stage("appended", index)',
        "pass",
    ),
    Edit(
        "tenure_cluster.raft.pump:Pump._synced",
        'self._tell_stage("durable", self.consensus.replica.last_index)',
        "pass",
    ),
    Edit("tenure_cluster.raft.pump:Pump.on_apply", 'self._tell_stage("committed", index)', "pass"),
    Edit("tenure_cluster.raft.pump:Pump.on_apply", 'self._tell_stage("applied", index)', "pass"),
)


def cut() -> None:
    """Make the cuts in this process, for good. Raises EditDoesNotFit."""
    sources: dict[str, str] = {}
    for edit in CUTS:
        source = sources.get(edit.where) or textwrap.dedent(inspect.getsource(find(edit.where)))
        sources[edit.where] = edited(edit, source)
    for where, source in sources.items():
        function = find(where)
        made: dict[str, Any] = {}
        code = compile(ast.parse(source), f"<{where} without tracing>", "exec")
        exec(code, function.__globals__, made)
        function.__code__ = made[function.__name__].__code__


if __name__ == "__main__":
    cut()
    cli()
