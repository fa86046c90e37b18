# SPDX-License-Identifier: MIT
"""The cffi recipe of `mooactor.tensors._cext` (API mode, out of line).

`setup.py` names `ffibuilder` in `cffi_modules`. The declarations are cut from
`cext/include/mooactor.h`, between its two markers, so there is one copy of them.
"""

import os
from pathlib import Path

from cffi import FFI

ROOT = Path("cext")  # setuptools runs this from the project's root, and
BEGIN, END = "/* cdef: begin */", "/* cdef: end */"  # wants relative paths


def declarations(header: str) -> str:
    """Return the part of the public header that cffi is to bind."""
    _, _, rest = header.partition(BEGIN)
    declared, found, _ = rest.partition(END)
    if not found:
        raise ValueError(f"mooactor.h lacks {BEGIN} … {END}")
    return declared


def sources() -> list[str]:
    """Every C file of every part: core, transport, collective."""
    return sorted(str(path) for path in ROOT.glob("*/*.c"))


def compile_arguments() -> list[str]:
    """Warnings are errors only for us: a user's newer compiler must not fail."""
    arguments = ["-std=c11", "-O3", "-Wall", "-Wextra", "-pthread"]
    if os.environ.get("MOOACTOR_WERROR"):
        arguments += ["-Werror", "-Wno-error=deprecated-declarations"]
    return [*arguments, "-fvisibility=hidden", "-D_GNU_SOURCE"]


def dependencies() -> list[str]:
    """Headers: a change in one of them compiles the extension again."""
    return sorted(str(path) for path in ROOT.glob("*/*.h"))


ffibuilder = FFI()
ffibuilder.cdef(declarations((ROOT / "include" / "mooactor.h").read_text()))
ffibuilder.set_source(
    "mooactor.tensors._cext",
    '#include "mooactor.h"',
    sources=sources(),
    include_dirs=[str(ROOT / "include"), str(ROOT)],
    depends=dependencies(),
    extra_compile_args=compile_arguments(),
    # dlopen of libfabric, which is in libdl before glibc 2.34
    extra_link_args=["-pthread", "-ldl"],
)

if __name__ == "__main__":
    ffibuilder.compile(verbose=True)
