# SPDX-License-Identifier: MIT
"""Actions at the end of a module's import, by any importer.

It costs the import of any other module one look into a dict, and nothing once all
awaited modules are imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Action = Callable[[ModuleType], object]


def after_import(name: str, action: Action) -> None:
    """Call `action` with the module of that name, once its code has run and before its
    importer goes on. An error of `action` is an error of the import. One action for a
    module.
    """
    _finder.actions[name] = action
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


class _Finder(MetaPathFinder):
    """Has others find the modules, and puts a loader of its own around theirs."""

    def __init__(self) -> None:
        self.actions: dict[str, Action] = {}

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if name not in self.actions:
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec
        return None

    def imported(self, module: ModuleType) -> None:
        action = self.actions.pop(module.__name__, None)
        if not self.actions and self in sys.meta_path:
            sys.meta_path.remove(self)
        if action is not None:
            action(module)


class _Loader(Loader):
    """Another loader, and then the action."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        # The module, and all that inspect it, must see its own loader.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _finder.imported(module)


_finder = _Finder()
