"""The typed keyword arguments equal the factory's arguments."""

from __future__ import annotations

import inspect

from haclient import aio, blocking
from haclient.cluster_url.options import OPTION_NAMES
from haclient.factory.factory_core import FactoryArguments, FactoryCore


def test_every_option_and_every_parameter_is_a_typed_keyword() -> None:
    parameters = inspect.signature(FactoryCore).parameters.values()
    own = {each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}
    assert set(FactoryArguments.__annotations__) == own | set(OPTION_NAMES)


def test_both_apis_take_what_the_core_takes_with_the_same_types_and_defaults() -> None:
    expected = dict(inspect.signature(FactoryCore).parameters)
    for module in (aio, blocking):
        assert dict(inspect.signature(module.ConnectionFactory).parameters) == expected
        of_connect = dict(inspect.signature(module.connect).parameters)
        assert of_connect.pop("timeout").default is None
        assert of_connect == expected
