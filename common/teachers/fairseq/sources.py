"""Files of a RoBERTa for --arch: the official archives, or a folder of fairseq's."""

from pathlib import Path

from common.data.archives import unpack_member
from common.data.download import fetch
from common.errors import UserError
from common.store.files import folder_name
from common.teachers.fairseq.checkpoint import CHECKPOINT_FILE
from common.teachers.settings import FAIRSEQ_ARCHS

DICTIONARY_FILE = "dict.txt"
_ADDRESS = "https://dl.fbaipublicfiles.com/fairseq"
# The archives' checksums are not published, so that of the first download is saved and required from then on. Also, the
# checkpoint is read by the weights-only loader, and its tensors must have the names and shapes of the architecture.
_BYTE_PAIRS = {
    "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}
"""GPT-2's byte pairs, the same for every English RoBERTa, with their SHA-256."""


def resolve(arch: str, downloads: Path) -> tuple[str, str]:
    """Return (folder with model.pt and dict.txt, short name) of an --arch for fairseq, downloaded where needed.

    Raises UserError when an archive cannot be fetched, or a folder has no dictionary.
    """
    if arch in FAIRSEQ_ARCHS:
        name = arch.replace("_", ".")
        archive = fetch(f"{_ADDRESS}/models/{name}.tar.gz", None, downloads, "--arch takes the folder of a local copy")
        for member in (CHECKPOINT_FILE, DICTIONARY_FILE):
            if not (downloads / name / member).exists():
                unpack_member(archive, f"{name}/{member}", downloads / name / member)
        return str(downloads / name), arch
    folder = Path(arch)
    if not (folder / DICTIONARY_FILE).exists():
        raise UserError(f"{folder / DICTIONARY_FILE}: no such file; a fairseq model comes with its dictionary")
    return arch, folder_name(folder)


def byte_pairs(source: Path, downloads: Path) -> Path:
    """Return the folder of encoder.json and vocab.bpe: the model's own, or GPT-2's; fairseq's archives lack them."""
    if all((source / name).exists() for name in _BYTE_PAIRS):
        return source
    for name, sha256 in _BYTE_PAIRS.items():
        fetch(f"{_ADDRESS}/gpt2_bpe/{name}", sha256, downloads / "gpt2_bpe", "or put it into the model's folder")
    return downloads / "gpt2_bpe"


def model_files(arch: str, downloads: Path) -> list[Path]:
    """Return the files of a model: checkpoint, dictionary, byte pairs. Raises as `resolve` does."""
    source = Path(resolve(arch, downloads)[0])
    pairs = byte_pairs(source, downloads)
    return [source / CHECKPOINT_FILE, source / DICTIONARY_FILE, *(pairs / name for name in _BYTE_PAIRS)]
