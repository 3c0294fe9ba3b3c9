"""Small edits of the running program: a mutant is the real code with a few lines exchanged.

An edit names a function and a piece of its source, which must stand there exactly once, and what stands there
instead. The function's code object is exchanged in place, so whoever refers to the function, by whatever
name or table, gets the mutant. An edit whose piece is not found, or that changes nothing, raises
``EditDoesNotFit``: a mutant that was left behind by a change of the code must be noticed, and never be
counted as one that was run. Whether the function was entered while the edit was on is counted too.
"""

import ast
import importlib
import inspect
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

_ENTERED = "_mutant_entered"
"""What an edited function calls first; put into the globals of its module."""


class EditDoesNotFit(Exception):
    """The code that an edit was written for is not there any more."""


@dataclass(frozen=True)
class Edit:
    """``where`` is ``module:Qualified.name``. ``old`` stands in that function once; lines are compared
    without the indentation of the function itself. ``new`` may use what the module knows.
    """

    where: str
    old: str
    new: str


def find(where: str) -> FunctionType:
    """The function of that name. Raises EditDoesNotFit."""
    module_name, _, path = where.partition(":")
    try:
        target: Any = importlib.import_module(module_name)
        for name in path.split("."):
            target = inspect.getattr_static(target, name)
    except (ImportError, AttributeError) as error:
        raise EditDoesNotFit(f"{where} is not there: {error}") from error
    if isinstance(target, property):
        target = target.fget
    elif isinstance(target, staticmethod | classmethod):
        target = target.__func__
    if not isinstance(target, FunctionType):
        raise EditDoesNotFit(f"{where} is no function but {type(target).__name__}")
    return target


def edited(edit: Edit, source: str) -> str:
    """The source of the function with the edit made. Raises EditDoesNotFit."""
    count = source.count(edit.old)
    if count != 1:
        raise EditDoesNotFit(f"{edit.where} has {count} times, and not once: {edit.old!r}")
    return source.replace(edit.old, edit.new)


def _compiled(function: FunctionType, source: str) -> CodeType:
    """The code object of a function with this source, as if it stood where ``function`` stands."""
    [definition] = ast.parse(source).body
    if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        raise EditDoesNotFit(f"{function.__qualname__} is no plain function")
    definition.decorator_list = []
    entered = ast.Expr(
        ast.Call(ast.Name(_ENTERED, ast.Load()), [ast.Constant(function.__qualname__)], keywords=[])
    )
    definition.body.insert(1 if ast.get_docstring(definition) is not None else 0, entered)
    tree = ast.fix_missing_locations(ast.Module([definition], type_ignores=[]))
    namespace: dict[str, Any] = {}
    exec(compile(tree, f"<mutant of {function.__qualname__}>", "exec"), function.__globals__, namespace)
    code: CodeType = namespace[definition.name].__code__
    if code.co_freevars != function.__code__.co_freevars:
        raise EditDoesNotFit(f"{function.__qualname__} is a closure")
    return code


@contextmanager
def made(edits: Sequence[Edit]) -> Iterator[Counter[str]]:
    """The edits are in the program inside, and out of it after. Yields how often each edited function was
    entered. Raises EditDoesNotFit before anything is changed.
    """
    sources: dict[str, str] = {}
    for edit in edits:
        find(edit.where)
    for edit in edits:
        source = sources.get(edit.where) or textwrap.dedent(inspect.getsource(find(edit.where)))
        sources[edit.where] = edited(edit, source)
    functions = {where: find(where) for where in sources}
    codes = {where: _compiled(functions[where], source) for where, source in sources.items()}
    entered: Counter[str] = Counter()
    originals = {where: function.__code__ for where, function in functions.items()}

    def count(name: str) -> None:
        entered[name] += 1

    globals_of = [sys.modules[function.__module__].__dict__ for function in functions.values()]
    try:
        for module in globals_of:
            module[_ENTERED] = count
        for where, function in functions.items():
            function.__code__ = codes[where]
        yield entered
    finally:
        for where, function in functions.items():
            function.__code__ = originals[where]
        for module in globals_of:
            module.pop(_ENTERED, None)
