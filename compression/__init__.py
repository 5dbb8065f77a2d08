"""What the project is for: students, their embeddings, distillation, pruning and quantization."""

import pkgutil

# From Python 3.14 on the standard library has a package of this name, and gzip, bz2, lzma, shutil and tarfile import
# modules of it. With our root first on the path they get this package: its search path goes on with that folder.
__path__ = pkgutil.extend_path(__path__, __name__)
