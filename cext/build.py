# SPDX-License-Identifier: MIT
"""The cffi recipe of `mooactor.tensors._cext` (API mode, out of line).

`setup.py` names `ffibuilder` in `cffi_modules`. The declarations are cut from
`cext/include/mooactor.h`, between its two markers, so there is one copy of them; with
libfabric also from `mooactor_bench.h`, for `make bench-all`.
"""

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path

from cffi import FFI

ROOT = Path("cext")  # setuptools runs this from the project's root, and
BEGIN, END = "/* cdef: begin */", "/* cdef: end */"  # wants relative paths


def declarations(header: str) -> str:
    """Return the part of the public header that cffi is to bind."""
    _, _, rest = header.partition(BEGIN)
    declared, found, _ = rest.partition(END)
    if not found:
        raise ValueError(f"the header lacks {BEGIN} … {END}")
    return declared


def sources(fabric: bool) -> list[str]:
    """Every C file of every layer, those that need libfabric's headers only with it."""
    found = set(ROOT.rglob("*.c"))
    if not fabric:
        found -= set((ROOT / "transport" / "ofi").glob("*.c"))
    return sorted(str(path) for path in found)


LIBFABRIC = "#include <rdma/fabric.h>\n"
FOUND = Path("build") / "libfabric"  # the last build's answer


def has_libfabric() -> bool:
    """Whether the compiler finds libfabric's headers; MOOACTOR_NO_LIBFABRIC hides them.

    A build with another answer than the last one compiles everything again, because
    the answer is kept in a file that the extension depends on.
    """
    if os.environ.get("MOOACTOR_NO_LIBFABRIC"):
        return False
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    flags = f"{os.environ.get('CPPFLAGS', '')} {os.environ.get('CFLAGS', '')}"
    command = [*shlex.split(compiler), *shlex.split(flags), "-E", "-x", "c", "-"]
    try:
        done = subprocess.run(command, input=LIBFABRIC.encode(), capture_output=True)
    except OSError:
        return False  # no compiler, which the build will report
    return done.returncode == 0


def remember(found: bool) -> str:
    """The file with that answer, touched only if the answer changed."""
    answer = "found\n" if found else "absent\n"
    if not FOUND.exists() or FOUND.read_text() != answer:
        FOUND.parent.mkdir(exist_ok=True)
        FOUND.write_text(answer)
    return str(FOUND)


def compile_arguments(fabric: bool) -> list[str]:
    """Warnings are errors only for us: a user's newer compiler must not fail."""
    arguments = ["-std=c11", "-O3", "-Wall", "-Wextra", "-pthread"]
    if os.environ.get("MOOACTOR_WERROR"):
        arguments += ["-Werror", "-Wno-error=deprecated-declarations"]
    if not fabric:
        arguments.append("-DMOOI_NO_FABRIC")
    return [*arguments, "-fvisibility=hidden", "-D_GNU_SOURCE"]


def dependencies() -> list[str]:
    """A change in one of them compiles the extension again."""
    headers = sorted(str(path) for path in ROOT.rglob("*.h"))
    return [*headers, str(ROOT / "build.py")]


def recipe() -> FFI:
    """The extension for setuptools."""
    builder = FFI()
    found = has_libfabric()
    headers = ["mooactor.h", *(["mooactor_bench.h"] if found else [])]
    for header in headers:
        builder.cdef(declarations((ROOT / "include" / header).read_text()))
    builder.set_source(
        "mooactor.tensors._cext",
        "\n".join(f'#include "{header}"' for header in headers),
        sources=sources(found),
        include_dirs=[str(ROOT / "include"), str(ROOT)],
        depends=[*dependencies(), remember(found)],
        extra_compile_args=compile_arguments(found),
        # dlopen of libfabric, which is in libdl before glibc 2.34
        extra_link_args=["-pthread", "-ldl"],
    )
    return builder


if __name__ == "__main__":  # as make asks, to see whether it has come or gone
    remember(has_libfabric())
else:
    ffibuilder = recipe()
