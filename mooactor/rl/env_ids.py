# SPDX-License-Identifier: MIT
"""Ids of environments: ``Name-v0``, or ``module:Name-v0`` as Gymnasium has it."""

from __future__ import annotations

import importlib
import importlib.util

import gymnasium
from gymnasium.envs.registration import EnvSpec


def find_spec(env_id: str) -> EnvSpec:
    """The specification of ``env_id``; a module named in it is imported first.

    Raises:
      gymnasium.error.Error: no such environment is registered.
      ModuleNotFoundError: there is no such module, or ale-py is needed and missing.
      ImportError: the module is there, and importing it failed.
    """
    module, _, name = env_id.rpartition(":")
    if module:
        _import_module(module, env_id)
    if importlib.util.find_spec("ale_py") is not None:
        import ale_py

        gymnasium.register_envs(ale_py)
    elif name.startswith("ALE/"):
        raise ModuleNotFoundError(f"{env_id} needs ale-py: pip install mooactor[atari]")
    try:
        return gymnasium.spec(name)
    except gymnasium.error.Error as error:
        advice = f"check that {module} registers it"
        if not module:
            advice = f"if a module of yours registers it, name both: MODULE:{name}"
        text = f"no environment {name!r} is registered ({error}); {advice}"
        raise type(error)(text) from error


def atari_game(env_id: str) -> str | None:
    """The ROM's name (``"breakout"``) behind an ALE id, or None for any other id.

    ``env_id`` may name a module, ``module:Name-v0``, which is then imported first.

    Raises:
      gymnasium.error.Error: no such environment is registered.
      ModuleNotFoundError: the id names a missing module, or it is one of ALE and ale-py
        is not installed.
      ImportError: the module is there, and importing it failed.
    """
    spec = find_spec(env_id)
    entry = spec.entry_point
    is_atari = isinstance(entry, str) and entry.startswith("ale_py")
    return str(spec.kwargs["game"]) if is_atari else None


def _import_module(module: str, env_id: str) -> None:
    try:
        importlib.import_module(module)
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name
        if missing and f"{module}.".startswith(f"{missing}."):
            raise ModuleNotFoundError(
                f"{env_id} names the module {module!r}, which Python does not find: "
                "install it, or put its directory into PYTHONPATH"
            ) from error
        raise ImportError(
            f"{env_id} names the module {module!r}, and to import it fails: "
            f"{type(error).__name__}: {error}"
        ) from error
