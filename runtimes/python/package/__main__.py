"""The command `featherweight`: classifies with packed files; other words run the scripts that train."""

from __future__ import annotations

import os
import sys

from . import PackedError, __version__, load
from ._train.compression.classifier import command_of
from ._train.compression.runtime.__main__ import main as classify
from ._train.compression.runtime.__main__ import run_command
from .card import card, facts
from .zoo import fetch, listing

SCRIPTS = ("experiment", "preprocess", "finetune", "compress", "evaluate", "analyze", "predict")
OF_COMPRESS = ("pretrain", "distill", "factorize", "prune", "quantize", "pack", "export")
OF_EXPERIMENT = ("fit", "run", "sweep", "report", "list", "show", "compare", "best", "clean")
USAGE = f"""usage: featherweight COMMAND ...

classify MODEL [TEXT ...]   print the label of each text, or of each line of standard input
info MODEL                  print what a packed file says of itself
card MODEL                  print a model card, to publish a packed file with
zoo                         list the models of the zoo, with scores and licences
zoo NAME --from FOLDER      copy one that is not here, from a path or an http(s) address, as NAME.fwt
fit FILE.csv [flags]        train a packed file from a table of texts and labels

Training needs more libraries: pip install 'featherweight[train]'. All commands, each with a --help of its own:
classify, info, card, zoo, {", ".join(OF_EXPERIMENT)},
{", ".join(OF_COMPRESS)},
{", ".join(SCRIPTS)}"""


def main() -> None:
    """Run the command of the command line."""
    run_command(_run)


def _run() -> None:
    command, *words = sys.argv[1:] or ["--help"]
    if command in ("-h", "--help"):
        print(USAGE)
    elif command == "--version":
        print(__version__)
    elif command == "classify":
        classify(words, load, "featherweight classify")
    elif command in ("info", "card"):
        if len(words) != 1:
            raise PackedError(f"featherweight {command} takes one packed file, or a model of the zoo")
        if command == "card":
            print(card(words[0]), end="")
        else:
            print(*(f"{name:9} {value}" for name, value in facts(load(words[0])).items()), sep="\n")
    elif command == "zoo":
        _zoo(words)
    elif command in OF_EXPERIMENT:
        _run_script("experiment", [command, *words])
    elif command in OF_COMPRESS:
        _run_script("compress", [command, *words])
    elif command in SCRIPTS:
        _run_script(command, words)
    else:
        raise PackedError(f"unknown command {command!r}; featherweight --help lists the commands")


def _zoo(words: list[str]) -> None:
    if not words:
        print(listing())
    elif len(words) == 3 and words[1] == "--from":
        print(f"{fetch(words[0], words[2])}: copied, and its SHA-256 is the zoo's")
    else:
        raise PackedError("usage: featherweight zoo, or featherweight zoo NAME --from FOLDER")


def _run_script(name: str, words: list[str]) -> None:
    """Replace this process by one that runs a script; Python puts the script's folder first on its path."""
    command = command_of(name, words)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
