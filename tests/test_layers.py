# SPDX-License-Identifier: MIT
"""The structure of the source: who may import whom, and what every file must have."""

import ast
import graphlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mooactor

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "mooactor"
MODULES = sorted(PACKAGE.rglob("*.py"))

LAYERS = (  # bottom to top; those in one row do not import each other
    ("errors", "times"),
    ("tensors",),
    ("control",),
    ("process.objects",),
    ("process",),
    ("process.actor",),
    ("host",),
    ("actors",),
    ("learner",),
    ("cluster", "rl"),
    ("observe", "testing"),
    ("cli",),
)
LEVELS = {part: level for level, row in enumerate(LAYERS) for part in row}
FACE = "mooactor"  # the package itself: what `import mooactor as moo` gives to users
USERS_OF_THE_FACE = ("rl", "cli", "testing")  # they are written as users would write


def name_of(path: Path) -> str:
    """``mooactor/a/b.py`` is ``mooactor.a.b``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[str]:
    """The full name of each module imported, anywhere in the file."""
    module = name_of(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            if base == FACE:  # `from mooactor import errors` names a layer
                yield from (f"{base}.{alias.name}" for alias in node.names)
            else:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)


def layer_of(module: str) -> str | None:
    """``mooactor.control.keys`` lies in ``control``; public names lie in the face."""
    if module == FACE:
        return FACE
    if not module.startswith(f"{FACE}."):
        return None
    parts = module.split(".")[1:]
    for length in (2, 1):  # a package in a package may be a layer of its own
        if (part := ".".join(parts[:length])) in LEVELS:
            return part
    return FACE


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_downward_only(path: Path) -> None:
    own = layer_of(name_of(path))
    if own in (None, FACE):
        pytest.skip("the package's own __init__ names every layer")
    upward = []
    for imported in imports_of(path):
        layer = layer_of(imported)
        if layer is None or layer == own:
            continue
        if layer == FACE:
            if own not in USERS_OF_THE_FACE:
                upward.append(imported)
        elif LEVELS[layer] >= LEVELS[own]:
            upward.append(imported)
    assert not upward, f"{own} (layer {LEVELS[own]}) must not import {upward}"


def test_every_part_of_the_package_has_a_layer() -> None:
    parts = {p.stem for p in PACKAGE.glob("*.py")} | {
        p.parent.name for p in PACKAGE.glob("*/__init__.py")
    }
    assert parts - {"__init__", "__main__"} <= set(LEVELS)


def test_every_part_of_process_has_a_layer() -> None:
    parts = {f"process.{p.parent.name}" for p in PACKAGE.glob("process/*/__init__.py")}
    assert parts == {layer for layer in LEVELS if layer.startswith("process.")}


def importers_of(module: str) -> set[str]:
    return {
        layer_of(name_of(path)) or ""
        for path in MODULES
        if any(
            name == module or name.startswith(f"{module}.") for name in imports_of(path)
        )
    }


def test_only_control_imports_zmq() -> None:
    # the command measures raw pyzmq beside the runtime, so it is no user of the plane
    assert importers_of("zmq") - {"cli"} == {"control"}


def test_only_tensors_imports_the_extension() -> None:
    assert importers_of("mooactor.tensors._cext") == {"tensors"}


@pytest.mark.parametrize("heavy", ["torch", "gymnasium", "ale_py", "matplotlib"])
def test_importing_mooactor_does_not_import(heavy: str) -> None:
    program = f"import sys, mooactor; print({heavy!r} in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert answer.stdout.strip() == "False"


def test_public_names_are_sorted_and_exist() -> None:
    assert list(mooactor.__all__) == sorted(mooactor.__all__)
    assert [n for n in mooactor.__all__ if not hasattr(mooactor, n)] == []


def test_dir_shows_the_public_names_only() -> None:
    names = sorted([*mooactor.__all__, "Accumulator"])
    assert [n for n in dir(mooactor) if n[0] != "_"] == names
    assert "__version__" in dir(mooactor)


@pytest.mark.parametrize("name", sorted(mooactor.__all__))
def test_every_public_name_says_what_it_is(name: str) -> None:
    value = getattr(mooactor, name)
    if inspect.ismodule(value) or callable(value):
        assert (inspect.getdoc(value) or "").strip(), f"moo.{name} has no docstring"
        return
    assert isinstance(value, str | int | float | tuple)


def test_public_methods_say_what_they_do() -> None:
    silent = []
    for name in mooactor.__all__:
        value = getattr(mooactor, name)
        if not inspect.isclass(value) or not value.__module__.startswith("mooactor"):
            continue
        for attribute, member in vars(value).items():
            if attribute.startswith("_") or not inspect.isfunction(member):
                continue
            if not inspect.getdoc(getattr(value, attribute)):
                silent.append(f"{name}.{attribute}")
    assert silent == []


SOURCES = [
    path
    for pattern in (
        "setup.py",
        "Makefile",
        ".ci/*",
        "mooactor/**/*.py",
        "cext/**/*.py",
        "cext/**/*.[ch]",
        "examples/**/*.py",
        "tests/**/*.py",
        "tests/**/*.[ch]",
        "tests/**/Makefile",
    )
    for path in sorted(ROOT.glob(pattern))
    if path.is_file()  # `make docs` leaves .ci/__pycache__
]


CEXT = ROOT / "cext"
C_FILES = sorted(CEXT.rglob("*.[ch]"))
C_USES = {  # a layer includes its own files, those of the layers named, and include/
    "core": (),
    "mail": ("core",),
    "transport": ("core",),
    "plane": ("core", "transport"),
    "collective": ("core", "transport", "plane"),
    "include": (),
}
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b[ \t]*(.*?)[ \t]*$", re.MULTILINE)


def c_layer_of(path: Path) -> str:
    return path.relative_to(CEXT).parts[0]


@pytest.mark.parametrize("path", C_FILES, ids=lambda p: str(p.relative_to(CEXT)))
def test_c_includes_point_downward_only(path: Path) -> None:
    own = c_layer_of(path)
    for included in INCLUDE.findall(path.read_text()):
        name = re.match(r'"([\w/]+\.h)"|<([\w/]+\.h)>', included)
        assert name, f"{included} is no plain path"
        ours = [root / name[name.lastindex] for root in (CEXT, CEXT / "include")]
        target = next((file for file in ours if file.exists()), None)
        assert bool(target) == bool(name[1]), f"{included}: quotes are for ours only"
        if target and target.parent.name != "include":
            layer = c_layer_of(target)
            assert layer in (own, *C_USES[own]), f"{own} must not include {included}"


C_CIRCLES = ("transport/tcp",)  # folders whose files call each other
COMMENT = re.compile(r"/\*.*?\*/|\"(?:\\\\.|[^\"\\\\\n])*\"", re.DOTALL)
DEFINITION = re.compile(
    r"^(?!static\b|typedef\b)[\w*][\w* ]*?\b(mooi?_\w+)\([^;{]*\)\n\{", re.MULTILINE
)
USE = re.compile(r"(?<!struct )(?<![.>\w])mooi?_\w+")


def c_files_used() -> dict[str, set[str]]:
    """For each file those it needs: the headers it includes, and, as a header does not
    say which file defines a function, those that define what it names."""
    texts = {path: path.read_text() for path in C_FILES}
    code = {path: COMMENT.sub("", text) for path, text in texts.items()}
    home = {name: path for path in C_FILES for name in DEFINITION.findall(code[path])}
    used: dict[str, set[str]] = {}
    for path in C_FILES:
        names = set(USE.findall(code[path])) if path.suffix == ".c" else set()
        needed = {home[name] for name in names if name in home}
        needed |= {CEXT / name.strip('"') for name in INCLUDE.findall(texts[path])}
        used[str(path.relative_to(CEXT))] = {
            str(other.relative_to(CEXT)) for other in needed & texts.keys() - {path}
        }
    return used


def test_no_c_files_need_each_other() -> None:
    used = c_files_used()
    assert (
        "core/slab.c" in used["core/arena.c"] and "core/arena.h" in used["core/slab.c"]
    )
    excused = {name for name in used if name.startswith(C_CIRCLES)}
    graphlib.TopologicalSorter(
        {name: needs - excused for name, needs in used.items() if name not in excused}
    ).prepare()  # CycleError names the circle


C_PRIVATE = ("collective/segment/segment.h",)  # headers that only their folder includes


@pytest.mark.parametrize("header", C_PRIVATE)
def test_a_private_header_is_included_in_its_own_folder_only(header: str) -> None:
    folders = {
        path.parent
        for path in C_FILES
        if f'"{header}"' in INCLUDE.findall(path.read_text())
    }
    assert folders == {(CEXT / header).parent}


def test_every_source_file_names_its_licence() -> None:
    def unmarked(path: Path) -> bool:
        head = path.read_text().splitlines()[:2]  # the first may be `#!`
        return bool(head) and "SPDX-License-Identifier: MIT" not in "".join(head)

    assert [str(path.relative_to(ROOT)) for path in SOURCES if unmarked(path)] == []
