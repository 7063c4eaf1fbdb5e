"""Build hook that compiles the kernel (docs/decisions/0028-compiled-kernel.md).

An installation without a C compiler succeeds and uses NumPy. `DPOLICY_KERNEL=numpy` skips the
compilation; with `DPOLICY_KERNEL=compiled`, a failure of the compiler is an error.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "dpolicy/balances/kernel"
MODULE = "compiled_kernel"


class KernelBuildHook(BuildHookInterface[Any]):
    """Hook that adds the compiled kernel to a wheel, or to the source of an editable one."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the kernel; leave the wheel pure if there is no compiler."""
        self._scratch = tempfile.mkdtemp(prefix="dpolicy-kernel-")
        source = Path(self.root, "src", PACKAGE)
        in_place = source / f"{MODULE}{EXTENSION_SUFFIXES[0]}"
        if version == "editable":
            in_place.unlink(missing_ok=True)  # it may be older than its source
        compiled = self._compile_or_warn(source)
        if compiled is None:
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        if version == "editable":
            partial = in_place.with_suffix(".partial")
            shutil.copy(compiled, partial)
            partial.replace(in_place)
        else:
            build_data["force_include"][str(compiled)] = f"{PACKAGE}/{compiled.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary files."""
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _compile_or_warn(self, source: Path) -> Path | None:
        choice = os.environ.get("DPOLICY_KERNEL")
        if choice == "numpy":
            return None
        try:
            return _compile(source / f"{MODULE}.pyx", Path(self._scratch))
        except (Exception, SystemExit) as error:  # compilers fail in many ways
            shutil.rmtree(self._scratch, ignore_errors=True)
            if choice == "compiled":
                raise
            self.app.display_warning(f"the kernel was not compiled, dpolicy uses NumPy: {error}")
            return None


def _compile(source: Path, scratch: Path) -> Path:
    """Compile the kernel into a temporary directory and return the path of the result."""
    # The imports can fail without build isolation; the installation then uses NumPy.
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    # Cython reads the compiler options from the first lines of the source.
    extension = Extension(f"{PACKAGE.replace('/', '.')}.{MODULE}", [str(source)])
    extensions = cythonize([extension], build_dir=str(scratch / "c"), quiet=True)
    command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(scratch / "lib"), str(scratch / "objects")
    command.ensure_finalized()
    command.run()
    (compiled,) = (scratch / "lib").rglob(f"{MODULE}.*")
    return compiled
