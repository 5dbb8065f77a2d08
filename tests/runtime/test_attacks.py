"""Files that attack a loader: every reader refuses each, in one line."""

import attacks
import pytest
import web_module
from test_packed_fuzz import limits

from compression.runtime import PackedError
from compression.runtime.native import NativeModel

FILES = [(title, name) for title, files in attacks.ATTACKS.items() for name in files]
NO_TRANSFORMERS = "leaves them out"
"""What the module says to a transformer."""


def data_of(title, name):
    return attacks.ATTACKS[title][name][1]


@pytest.mark.parametrize(("title", "name"), FILES, ids=[name for _, name in FILES])
def test_every_reader_refuses_in_one_line(c_library, joined_runtime, title, name):
    data = data_of(title, name)
    with limits(64 << 20):
        refusal = attacks.refusal(data)
    with pytest.raises(joined_runtime.PackedError) as of_joined:
        joined_runtime.load_bytes(data)
    with pytest.raises(PackedError) as of_native:
        NativeModel(data)
    assert str(of_joined.value) == refusal
    assert "\n" not in f"{refusal}{of_native.value}"


@pytest.mark.parametrize("title", attacks.ATTACKS)
def test_the_module_refuses_too(c_library, title):
    pytest.importorskip("wasmtime")
    for name in attacks.ATTACKS[title]:
        with pytest.raises(PackedError) as of_native:
            NativeModel(data_of(title, name))
        with pytest.raises(ValueError) as of_module:  # noqa: PT011
            web_module.WebModel(data_of(title, name))
        assert str(of_module.value) == str(of_native.value) or NO_TRANSFORMERS in str(of_module.value)


def test_the_files_are_what_the_script_writes():
    assert (attacks.FOLDER / "README.md").read_text(encoding="utf-8") == attacks.table()
    assert {path.name for path in attacks.FOLDER.glob("*.fwt")} == {f"{name}.fwt" for _, name in FILES}
    for title, name in FILES:
        assert (attacks.FOLDER / f"{name}.fwt").read_bytes() == data_of(title, name)
