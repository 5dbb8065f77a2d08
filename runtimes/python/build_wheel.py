"""What the wheel has besides the folders of pyproject.toml: scripts, small models of the zoo, and the C runtime.

The C runtime is compiled for any processor of this machine's kind. Without a C compiler the wheel is for all machines,
and NumPy answers.
"""

import os
import shlex
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MOST_BYTES = 100_000
"""Size of the largest models of the zoo in the wheel; of larger ones it has the cards, so that they are known."""
LIBRARY = "runtimes/c/libfeatherweight.so"
FLAGS = ("-std=c99", "-O3", "-ffp-contract=fast", "-fPIC", "-shared")


class WheelHook(BuildHookInterface):
    """Adds files to the wheel and names the platform that it is for; hatchling calls its methods."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files."""
        root, included = Path(self.root), build_data["force_include"]
        models = [path for path in root.glob("zoo/*.fwt") if path.stat().st_size <= MOST_BYTES]
        for path in [*root.glob("*.py"), *root.glob("zoo/*.json"), *models]:
            included[str(path)] = f"featherweight/_train/{path.relative_to(root)}"
        self._folder = tempfile.TemporaryDirectory()
        library = f"{self._folder.name}/library"
        command = [*shlex.split(os.environ.get("CC", "cc")), *FLAGS, str(root / "runtimes/c/featherweight.c")]
        try:
            subprocess.run([*command, "-o", library], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"the wheel has no C runtime: {error}")
            return
        included[library] = f"featherweight/_train/{LIBRARY}"
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled."""
        self._folder.cleanup()
