"""The command `featherweight`: classifies with packed files; other words run the scripts that train."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from . import PackedError, __version__, load
from ._train.compression.classifier import command_of
from ._train.compression.runtime.__main__ import main as classify
from ._train.compression.runtime.__main__ import run_command

OWN = ("classify", "info", "card", "zoo")
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
{", ".join(OWN + OF_EXPERIMENT)},
{", ".join(OF_COMPRESS)},
{", ".join(SCRIPTS)}"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise PackedError(f"{self.prog}: {message}")


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
    elif command in OWN:
        _run_own(command, words)
    elif command in OF_EXPERIMENT:
        _run_script("experiment", [command, *words])
    elif command in OF_COMPRESS:
        _run_script("compress", [command, *words])
    elif command in SCRIPTS:
        _run_script(command, words)
    else:
        from difflib import get_close_matches  # needed for wrong names only

        match = get_close_matches(command, OWN + OF_EXPERIMENT + OF_COMPRESS + SCRIPTS, n=1)
        hint = f"did you mean {match[0]}?" if match else "featherweight --help lists the commands"
        raise PackedError(f"unknown command {command!r}; {hint}")


def _run_own(command: str, words: Sequence[str]) -> None:
    # `classify` starts without them: they import the libraries of downloads.
    from .card import card, facts
    from .zoo import fetch, listing

    parser = _Parser(f"featherweight {command}", allow_abbrev=False)
    if command == "zoo":
        parser.add_argument("name", nargs="?", help="model to copy to the current folder; without it, list all")
        parser.add_argument("--from", dest="folder", help="where NAME.fwt is: a path, or an http(s) address")
        chosen = parser.parse_args(words)
        if (chosen.name is None) != (chosen.folder is None):
            parser.error("give a NAME and --from FOLDER, or neither")
        if chosen.name is None:
            print(listing())
        else:
            print(f"{fetch(chosen.name, chosen.folder)}: copied, and its SHA-256 is the zoo's")
        return
    parser.add_argument("model", help="packed file, or the name of a model of the zoo")
    model = parser.parse_args(words).model
    if command == "card":
        print(card(model), end="")
    else:
        print(*(f"{name:9} {value}" for name, value in facts(load(model)).items()), sep="\n")


def _run_script(name: str, words: Sequence[str]) -> None:
    """Replace this process by one that runs a script; Python puts the script's folder first on its path."""
    command = command_of(name, words)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
