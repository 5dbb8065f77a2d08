"""The zoo: packed files that come with the project and are given by their names, such as sst-2-12k."""

from __future__ import annotations

import os

from .reader import PackedError

PACKED_SUFFIX = ".fwt"
_HERE = os.path.dirname(os.path.abspath(__file__))
FOLDERS = (
    *filter(None, [os.environ.get("FEATHERWEIGHT_ZOO")]),
    os.path.normpath(os.path.join(_HERE, "..", "..", "zoo")),
    _HERE,
)
"""Where names are looked up: a folder of the user's, zoo/ of the repository, and the folder of this file, for one that
is copied to a device with its packed files."""


def zoo_names() -> list[str]:
    """Return the names of all models of the zoo."""
    files = {file for folder in FOLDERS if os.path.isdir(folder) for file in os.listdir(folder)}
    return sorted(file.removesuffix(PACKED_SUFFIX) for file in files if file.endswith(PACKED_SUFFIX))


def is_name(model: str) -> bool:
    """Return whether a text can be a name of the zoo: letters, digits, points, hyphens; not a path."""
    plain = model.replace("-", "").replace("_", "").replace(".", "")
    return plain.isascii() and plain.isalnum() and model[0] not in ".-" and not model.endswith(PACKED_SUFFIX)


def zoo_file(name: str) -> str | None:
    """Return the path of the packed file of a model of the zoo; None if there is none of that name."""
    if not is_name(name):
        return None
    paths = (os.path.join(folder, name + PACKED_SUFFIX) for folder in FOLDERS)
    return next((path for path in paths if os.path.isfile(path)), None)


def packed_file(model: str | os.PathLike) -> str | os.PathLike:
    """Return the path of a packed file, given by its path or, as a str, by its name in the zoo.

    Raises PackedError for a name that is not in the zoo.
    """
    if not isinstance(model, str) or not is_name(model) or os.path.exists(model):
        return model
    path = zoo_file(model)
    if path is None:
        raise PackedError(f"{model}: not a file, and not a model of the zoo{zoo_hint(model)}")
    return path


def zoo_hint(name: str) -> str:
    """Return '; did you mean X? (zoo: X, Y)' for a name that is not in the zoo; where to get one that a wheel lacks."""
    import difflib  # needed for wrong names only

    names = zoo_names()
    match = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    meant = f"; did you mean {match[0]}?" if match else ""
    return left_out(name) or f"{meant} (zoo: {', '.join(names) or 'empty'})"


def left_out(name: str) -> str:
    """Return where to get a model of the zoo that has only its card here; an empty text for any other name."""
    if not is_name(name) or not any(os.path.isfile(os.path.join(folder, f"{name}.json")) for folder in FOLDERS):
        return ""
    return f"; too large for the wheel: `featherweight zoo {name} --from FOLDER` copies it from a folder or an address"
