"""The options of a lock while ``configure`` changes them, with thread switches at any line."""

from __future__ import annotations

import pytest
from support.switching import Make, Scene, Scenes, Switcher, name_of

from redis_lock_decorators._shared.lock_config import LockConfig
from redis_lock_decorators._shared.settings import Settings

SCENES = Scenes("_shared/lock_config")


@SCENES.add
def two_threads_use_a_lock_after_configure(switcher: Switcher) -> Scene:
    settings = Settings()
    config = LockConfig(settings, None, None, {"expire": 20.0})
    settings.configure(None, None, None, {"prefix": "new:"})
    found = []

    def use() -> None:
        found.append(config.options)

    def check() -> None:
        assert [(options.prefix, options.expire) for options in found] == [("new:", 20.0)] * 2

    return Scene(use, use, check)


@SCENES.add
def configure_changes_options_in_use(switcher: Switcher) -> Scene:
    settings = Settings()
    config = LockConfig(settings, None, None, {"expire": 20.0})
    settings.configure(None, None, None, {"prefix": "new:"})

    def change() -> None:
        settings.configure(None, None, None, {"prefix": "newer:"})
        assert config.options.prefix == "newer:"

    def check() -> None:
        assert config.options.prefix == "newer:"

    return Scene(lambda: config.options, change, check)


@pytest.mark.parametrize("scene", list(SCENES), ids=name_of)
def test_a_lock_has_the_options_that_are_in_force(scene: Make) -> None:
    assert SCENES.explore(scene) > 1
