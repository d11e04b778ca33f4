"""Sets up a factory's telemetry: the redactor, and the recorder if telemetry is on.

The recorder with its file writer is imported only if telemetry is on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from haclient.cluster_url.options import Options
from haclient.cluster_url.url import ClusterURL
from haclient.factory.connect_params import seed_credentials
from haclient.telemetry import settings as telemetry_settings
from haclient.telemetry.redact import Redactor
from haclient.telemetry.settings import TelemetrySettings

if TYPE_CHECKING:
    from haclient.telemetry.record import Recorder


def make_redactor(url: ClusterURL, client_id: str) -> Redactor:
    """Return a redactor that knows the passwords in the URL, and the public names."""
    redactor = Redactor((client_id, *(seed.endpoint.host for seed in url.seeds)))
    for seed in url.seeds:
        known = seed_credentials(seed)
        redactor.add(known.user, known.password)
    return redactor


def make_recorder(given: TelemetrySettings | None, options: Options, redactor: Redactor) -> Recorder | None:
    """Return the recorder of a factory; ``None`` if telemetry is off.

    :param given: the application's settings, which override the option.
    """
    settings = telemetry_settings.resolve(given, options.telemetry, attributes=options.telemetry_attributes)
    if settings is None:
        return None
    from haclient.telemetry.record import Recorder  # noqa: PLC0415 - loads the writer

    return Recorder(
        settings, redactor, backoff_max=options.backoff_max, backoff_strategy=options.backoff_strategy
    )
