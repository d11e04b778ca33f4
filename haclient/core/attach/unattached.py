"""Links that cannot be attached: each ends alone, with the reason."""

from __future__ import annotations

import proton

from haclient.core.attach.refusals import link_error
from haclient.core.attach.trials import LinkCore
from haclient.engine.attach_size import FRAME_SIZE_TOO_SMALL, AttachTooLarge
from haclient.engine.protocol import Engine
from haclient.error_catalog.base import quoted
from haclient.errors import LinkRefused


def attach_or_fail(link: LinkCore, engine: Engine, session: proton.Session) -> None:
    """Attach a link, or end it where that cannot be."""
    try:
        link.attach(engine, session)
    except LinkRefused as error:
        link.fail(error)
    except AttachTooLarge as error:
        fail_unattached(link, str(error), FRAME_SIZE_TOO_SMALL)


def fail_unattached(link: LinkCore, reason: str, condition: str) -> None:
    """End a link that cannot be attached."""
    message = f"the link to {quoted(link.address)} cannot be attached: {reason}"
    link.fail(link_error(message, condition, opened=link.was_open))
