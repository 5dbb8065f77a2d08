"""Join compression/runtime into one file that can be copied to a device with a packed student.

    python runtimes/python/join.py

Modules follow the modules that they import. Imports inside the package are left out, the others merged at the top; of
__init__.py, which only re-exports names, the docstring is taken.
"""

import ast
from collections import Counter
from importlib.util import resolve_name
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "compression" / "runtime"
NAME = "compression.runtime"
TARGET = Path(__file__).parent / "featherweight.py"
START = """if __name__ == "__main__":
    # Before numpy loads: products this small gain nothing from threads, which take time to start and to wait.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
"""


def join() -> str:
    """Return the source of the joined file. Raises ValueError when two modules define the same name."""
    order: list[str] = []
    add_in_order(f"{NAME}.__main__", order)
    sources = {module: source_of(module) for module in order}
    trees = {module: ast.parse(source) for module, source in sources.items()}
    imports = sorted({line for tree in trees.values() for line in external_imports(tree)} | {"import os"})
    of_numpy = [line for line in imports if "numpy" in line]
    standard = [line for line in imports if line not in of_numpy and "__future__" not in line]
    names = Counter(name for tree in trees.values() for name in definitions(tree))
    if repeated := [name for name, count in names.items() if count > 1]:
        raise ValueError(f"defined in two modules of {NAME}: {', '.join(repeated)}")
    docstring = ast.get_docstring(ast.parse(source_of(NAME)))
    opening = f'"""{docstring}\n\nJoined from {NAME} by `make runtime`: change it there.\n"""'
    parts = [opening, "from __future__ import annotations", "\n".join(standard), START, "\n".join(of_numpy)]
    parts += [f"# {module}\n\n\n{body_of(sources[module], tree)}" for module, tree in trees.items()]
    return "\n\n".join(parts) + "\n"


def add_in_order(module: str, order: list[str]) -> None:
    """Append a module, after all modules of the package that it imports."""
    for node in ast.parse(source_of(module)).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            imported = resolve_name("." * node.level + node.module, module.rpartition(".")[0])
            if imported not in order:
                add_in_order(imported, order)
    order.append(module)


def source_of(module: str) -> str:
    """Return the source of a module, or of the package itself."""
    path = PACKAGE.joinpath(*module.removeprefix(NAME).split(".")[1:])
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")


def external_imports(tree: ast.Module) -> list[str]:
    """Return a line for each name that a module imports from outside the package."""
    lines = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            lines.append(ast.unparse(node))
        elif isinstance(node, ast.ImportFrom) and not node.level:
            lines += [f"from {node.module} import {alias.name}" for alias in node.names]
    return lines


def definitions(tree: ast.Module) -> list[str]:
    """Return the names that a module defines at its top level."""
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        names += [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    return names


def body_of(source: str, tree: ast.Module) -> str:
    """Return a module's source without its docstring and imports."""
    lines = source.splitlines()
    left_out = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in [tree.body[0], *left_out]:
        lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    return "\n".join(lines).strip()


if __name__ == "__main__":
    TARGET.write_text(join(), encoding="utf-8")
    print(f"{TARGET}: copy it next to packed files (.fwt); it needs NumPy only")
