"""Every release method of every kind of client, whatever the user's rights become in the block."""

from __future__ import annotations

from typing import Any

import pytest
from support.fronts import wrap
from support.leftovers import TIDY_FRONTS

FRONTS = TIDY_FRONTS
RIGHTS = ["+@all", "-eval|-evalsha", "-eval|-evalsha|-multi"]


@pytest.mark.parametrize("error", [None, KeyError("its own")], ids=["ended", "failed"])
@pytest.mark.parametrize("rights", RIGHTS)
@pytest.mark.parametrize("method", ["script", "transaction", "native"])
@pytest.mark.parametrize("is_wrapped", [False, True], ids=["direct", "wrapped"])
async def test_block_releases_its_lock_and_keeps_its_error(
    front: Any, server: Any, name: str, is_wrapped: bool, method: str, rights: str, error: Any
) -> None:
    admin, user = server.client(), name.replace(":", "-")
    admin.execute_command("ACL", "SETUSER", user, "reset", "on", "nopass", "~*", "&*", "+@all")
    client = front.client(server, username=user, password="any")  # noqa: S106
    if is_wrapped:
        wrap(client)
    raised = None
    try:
        async with front.held(front.package.RedisLock(name, client=client, release_method=method)):
            admin.execute_command("ACL", "SETUSER", user, *rights.split("|"))
            if error is not None:
                raise error
    except KeyError as own:
        raised = own
    finally:
        admin.acl_deluser(user)

    assert raised is error
    assert not admin.exists(f"sys:lock:{name}")
