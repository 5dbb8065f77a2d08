"""Names say what a thing is, and calls say what they pass: no place may do otherwise."""

import ast
import re
from collections import Counter
from functools import cache

import pytest
import tiny

VAGUE = frozenset(("each", "found", "own", "given", "about", "wanted"))
NEAR = 8
"""Lines after a tuple or dictionary is built in which a call that takes it apart is noticed."""
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module, ast.ClassDef)
COMPOUND = (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.Match, ast.FunctionDef, ast.ClassDef)


def package_of(path):
    """Return the package of a file, by the first two parts of its path."""
    folders = path.relative_to(tiny.ROOT).parts[:-1]
    return "/".join(folders[:2]) or "scripts"


@cache
def places():
    """Return for each package three lists of places, as "file:line name", one for each rule."""
    by_package = {}
    for folder in ("common", "compression", "benchmarks", "runtimes", "docs", "zoo", "."):
        for path in sorted((tiny.ROOT / folder).glob("*.py" if folder == "." else "**/*.py")):
            tree, lists = ast.parse(path.read_bytes()), by_package.setdefault(package_of(path), ([], [], []))
            for rule, to in zip((passed_with_stars, vague_names, needless_docstrings), lists, strict=True):
                to.extend(f"{path.relative_to(tiny.ROOT)}:{line} {name}" for line, name in rule(tree))
    return by_package


def in_scope(scope):
    """Yield the nodes of a function, class or module, without those of functions and classes in it."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, SCOPES):
            yield from in_scope(node)


def is_built(value):
    """Return whether an expression builds a tuple, list or dictionary from what is written there."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr | ast.Add):
        return is_built(value.left) or is_built(value.right)
    return isinstance(value, ast.Tuple | ast.List | ast.Dict)


def passed_with_stars(tree):
    """Yield line and name of tuples, lists and dictionaries whose only use is a call with * or ** a few lines later."""
    for scope in (node for node in ast.walk(tree) if isinstance(node, SCOPES)):
        nodes = list(in_scope(scope))
        starred = {
            argument.id: call.lineno
            for call in nodes
            if isinstance(call, ast.Call)
            for argument in (
                *(argument.value for argument in call.args if isinstance(argument, ast.Starred)),
                *(keyword.value for keyword in call.keywords if keyword.arg is None),
            )
            if isinstance(argument, ast.Name)
        }
        if not starred:
            continue
        names = (node for node in ast.walk(scope) if isinstance(node, ast.Name))
        uses = Counter(node.id for node in names if isinstance(node.ctx, ast.Load))
        # A call cannot do what a condition adds.
        branches = (part for node in nodes if isinstance(node, ast.If) for part in ast.walk(node))
        changed = {node.id for node in branches if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        for node in nodes:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            value = getattr(node, "value", None)
            for name, built in names_and_values(targets, value):
                line = starred.get(name)
                if name in changed or not line:
                    continue
                if uses[name] == 1 and is_built(built) and 0 < line - node.end_lineno <= NEAR:
                    yield node.lineno, name


def names_and_values(targets, value):
    """Yield the names that an assignment binds, each with its value; `a, b = 1, 2` binds two."""
    for target in targets:
        if isinstance(target, ast.Name):
            yield target.id, value
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for part, of_part in zip(target.elts, value.elts, strict=True):
                yield from names_and_values([part], of_part)


def vague_names(tree):
    """Yield line and name of variables, arguments, attributes and functions that are called as things in general."""
    for node in ast.walk(tree):
        stored = isinstance(getattr(node, "ctx", None), ast.Store)
        if isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and stored:
            name = node.id
        elif isinstance(node, ast.Attribute) and stored:
            name = node.attr
        elif isinstance(node, ast.FunctionDef | ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            name = node.name
        else:
            continue
        if name in VAGUE:
            yield node.lineno, name


def needless_docstrings(tree):
    """Yield line and name of private functions with a docstring and one line."""
    for node in ast.walk(tree):
        private = isinstance(node, ast.FunctionDef) and node.name.startswith("_") and not node.name.endswith("__")
        if not private or len(node.body) != 2 or ast.get_docstring(node) is None:
            continue
        statement = node.body[1]
        if not isinstance(statement, COMPOUND) and statement.lineno == statement.end_lineno:
            yield node.lineno, node.name


@pytest.mark.slow
@pytest.mark.parametrize("rule", range(3), ids=["passed with stars", "vague names", "docstrings"])
def test_no_place_breaks_a_rule(rule):
    for package, lists in places().items():
        assert not lists[rule], f"{package}:\n" + "\n".join(lists[rule])


def test_the_rules():
    source = """
def f(each, *, own=1):
    about = a, b
    f(*about)
    more = {"a": 1} | b
    return f(
        **more
    )
def g(self):
    pair = a, b
    f(*pair)
    later, far = [a], {**b}
    maybe = {"a": 1}
    if b:
        maybe |= {"b": 2}
    f(**maybe)
    self.found = f(later, *pair)
    first = (a, b)
    f(*first)
    return first
def _h():
    '''Return h.'''
    return 1
def _i():
    '''Return i.'''
    for given in f():
        pass
def j():
    '''Return j.'''
    return 1
"""
    tree = ast.parse(source)
    assert [name for _, name in passed_with_stars(tree)] == ["about", "more"]
    assert sorted(name for _, name in vague_names(tree)) == ["about", "each", "found", "given", "own"]
    assert [name for _, name in needless_docstrings(tree)] == ["_h"]


def test_messages_name_commands_as_they_are_typed():
    """In a clone "python evaluate.py", from the wheel "featherweight evaluate": common.installed.typed knows which."""
    by_hand = []
    for path in (path for folder in ("common", "compression") for path in (tiny.ROOT / folder).glob("**/*.py")):
        tree = ast.parse(path.read_bytes())
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
        for text in texts:
            if id(text) not in docstrings and re.search(r"\bpython \w+\.py", text.value):
                by_hand.append(f"{path.relative_to(tiny.ROOT)}:{text.lineno}")
    assert not by_hand
