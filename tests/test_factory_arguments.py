"""The typed keyword arguments are exactly those that the factory takes."""

from __future__ import annotations

import inspect

from haclient.cluster_url.options import OPTION_NAMES
from haclient.factory import FactoryArguments, FactoryCore


def test_every_option_and_every_parameter_is_a_typed_keyword() -> None:
    parameters = inspect.signature(FactoryCore).parameters.values()
    own = {each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}
    assert set(FactoryArguments.__annotations__) == own | set(OPTION_NAMES)
