"""Bytes in, proton events out: one AMQP 1.0 connection over one asyncio transport.

* ``protocol``    the asyncio protocol around proton's sans-I/O engine, client and server side
* ``owner``       the calls of an engine on its owner, and how a connection ended
* ``proton_objects``  proton's objects of one connection, made and released together
* ``reporting_transport``  proton's transport as handlers see it, with log-in and TLS
* ``link_table``  the links of a connection; handles the peer's Attach, Flow, Detach and End
* ``links``       sender and receiver links of one connection: the hot path, in proton's C calls
* ``codec``       a message to bytes and back
* ``settings``    the parameters of one connection
* ``tls``, ``sasl``  transport security and authentication
* ``wire``        a peer's bytes before proton: TLS of a server, the order of frames, the greeting

Nothing here knows about clusters: an engine lives as long as its socket and is never reused.

The package imports proton before any of its modules does.  If that import fails, its error names the
missing system packages.  Every module that applications import loads this package first.
"""

from __future__ import annotations

import sys

_REBUILD = (
    "install gcc and python3-dev (RPM: gcc, glibc-devel and python3-devel), then: pip install "
    "--force-reinstall --no-cache-dir --no-binary python-qpid-proton python-qpid-proton"
)

try:
    import proton  # noqa: F401
except ImportError as error:
    _outside = sys.prefix == sys.base_prefix
    raise type(error)(
        f"haclient needs python-qpid-proton, which cannot be imported here: {error}.  "
        + (f"This is the Python of {sys.prefix}: is your virtual environment active?  " if _outside else "")
        + "If a shared library "
        "is missing, install libssl3 and libsasl2-2 (RPM: openssl-libs and cyrus-sasl-lib).  If proton is "
        f"missing, or was built for another Python, {_REBUILD}",
        name=error.name,
        path=error.path,
    ) from error
