"""How the project's commands are typed and its libraries installed: in a clone, or where its wheel is installed."""

from pathlib import Path

FROM_WHEEL = Path(__file__).parts[-4:-2] == ("featherweight", "_train")
"""Whether these files are those of the wheel, featherweight/_train."""


def typed(script: str, python: str = "python") -> str:
    """Return the first words of a command that runs a script."""
    return f"featherweight {script}" if FROM_WHEEL else f"{python} {script}.py"


def install(part: str) -> str:
    """Return the command that installs the libraries of a part: "train", "predict", "onnx", ..."""
    if FROM_WHEEL:
        return f"pip install 'featherweight[{part}]'"
    return f"pip install -r requirements{'' if part == 'train' else f'-{part}'}.txt"
