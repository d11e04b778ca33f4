"""Errors carry facts, can be pickled, and are subclasses of proton's errors as well."""

from __future__ import annotations

import copy
import importlib
import pickle
import pkgutil
import re
from collections.abc import Iterator

import proton
import pytest

import haclient
from haclient import Outcome, OutcomeState, errors
from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import AttemptRecord, Failure, FailureReason

PLACE = Endpoint("broker-a", 5672)
RECORD = AttemptRecord(
    number=1,
    endpoint=PLACE,
    started=1.0,
    ended=2.0,
    failure=Failure(kind=FailureReason.REFUSED, detail="refused"),
)
REJECTED = Outcome(OutcomeState.REJECTED, "app:bad", "not a number")
SAMPLES = [
    errors.ConnectionGaveUp("gave up", (RECORD,)),
    errors.DeadlineExceeded("too late", (RECORD,)),
    errors.AuthenticationFailed("who are you", (RECORD,), "PLAIN", PLACE),
    errors.TLSVerificationFailed("wrong name", (RECORD,)),
    errors.TokenRequestError("who is this program"),
    errors.ConnectionNotAllowed("one too many", (RECORD,)),
    errors.ConnectionClosed("closed", delivered=None),
    errors.LinkRefused("refused", "amqp:not-found"),
    errors.FilterNotSupported("all of them come", ("colour", "size")),
    errors.LinkTimeout("late"),
    errors.LinkClosed("closed", "amqp:link:detach-forced", delivered=None),
    errors.SendTimeout("late", delivered=None),
    errors.SendTimeout("late", delivered=False, duplicate_id="the id"),
    errors.ReceiveTimeout("late"),
    errors.DrainTimeout("late"),
    errors.ConfirmNotSupported("first"),
    errors.ConfirmTimeout("late"),
    errors.DeliveryUnknown("unknown"),
    errors.MessageNotAccepted("rejected", REJECTED),
    errors.MessageTooLarge("2 bytes", 2, 1, delivered=None),
    errors.WindowFull("full", 1000),
    errors.SendManyError("1 of 2", [REJECTED]),
    errors.UndecodableMessage("cannot decode the data section: it ends within a value"),
    errors.UnencodableValue("object is not an AMQP type", "body"),
    errors.StaleDelivery("stale"),
    errors.AlreadySettled("twice"),
    errors.WrongThread("wrong"),
    errors.ResolutionError("broker.test", "no such name"),
    errors.ClusterURLError("unknown option 'x'", "x"),
    errors.ConfigurationError("HACLIENT_X is not known", "x", "environment variable HACLIENT_X"),
    errors.SaslUnavailableError("no SCRAM here"),
]
PROTONS = {
    proton.ConnectionException: [
        errors.ConnectionGaveUp,
        errors.DeadlineExceeded,
        errors.AuthenticationFailed,
        errors.TLSVerificationFailed,
        errors.ConnectionNotAllowed,
        errors.ConnectionClosed,
    ],
    proton.LinkException: [
        errors.LinkRefused,
        errors.FilterNotSupported,
        errors.ConfirmNotSupported,
        errors.LinkClosed,
        errors.DeliveryUnknown,
        errors.MessageNotAccepted,
        errors.MessageTooLarge,
        errors.WindowFull,
        errors.SendManyError,
        errors.StaleDelivery,
        errors.AlreadySettled,
    ],
    proton.MessageException: [errors.UndecodableMessage, errors.UnencodableValue],
    TypeError: [errors.UnencodableValue],
    ValueError: [errors.ClusterURLError, errors.ConfigurationError],
    RuntimeError: [errors.SaslUnavailableError, errors.WrongThread],
    proton.Timeout: [
        errors.DeadlineExceeded,
        errors.LinkTimeout,
        errors.SendTimeout,
        errors.ReceiveTimeout,
        errors.DrainTimeout,
        errors.ConfirmTimeout,
    ],
}
# Applications get errors of these parts; other parts are separate programs.
PARTS = """
    api cluster_url configuration connect_params core discovery
    engine error_catalog errors factory resolver retry
"""
PUBLIC = {
    found.name
    for found in pkgutil.walk_packages(haclient.__path__, "haclient.")
    if found.name.split(".")[1] in PARTS.split()
}
# Each of these is caught inside the package.
INTERNAL = {
    "RefusedChallenge",
    "NotSaslError",
    "RefusedLogin",
    "RefusedToken",
    "AttachTooLarge",
    "GaveUpError",
    "IllegalMove",
    "MalformedValue",
    "NotYetError",
    "TlsFileError",
    "TooManyLinksError",
    "Unanswered",
}


def subclasses(base: type[Exception]) -> Iterator[type[Exception]]:
    for module in PUBLIC:
        importlib.import_module(module)
    for each in base.__subclasses__():
        yield each
        yield from subclasses(each)


def every_class() -> set[type[errors.HaclientError]]:
    return {errors.HaclientError, *subclasses(errors.HaclientError)}  # type: ignore[arg-type]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_with_all_its_facts(error: Exception) -> None:
    copied = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(copied) is type(error)
    assert (str(copied), vars(copied)) == (str(error), vars(error))


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_a_copy_and_another_one_have_all_its_facts(error: errors.HaclientError) -> None:
    """A code that is more exact than the class is copied too."""
    error = copy.copy(error)
    error.code = "no-credit"
    for copied in (copy.copy(error), copy.deepcopy(error), errors.another(error)):
        assert type(copied) is type(error)
        assert copied is not error
        assert copied.args == error.args
        assert (str(copied), vars(copied)) == (str(error), vars(error))
    assert errors.another(error).__cause__ is error
    assert pickle.loads(pickle.dumps(error)).code == "no-credit"  # noqa: S301


def test_every_public_error_is_among_the_samples() -> None:
    public = {getattr(errors, name) for name in errors.__all__} - {errors.HaclientError}
    assert {type(error) for error in SAMPLES} == public


def test_every_error_derives_from_the_one_that_proton_raises_in_its_place() -> None:
    for base, ours in PROTONS.items():
        for error in ours:
            assert issubclass(error, base)
            assert issubclass(error, errors.HaclientError)
    assert issubclass(errors.LinkTimeout, TimeoutError)
    assert issubclass(errors.SendTimeout, TimeoutError)
    assert issubclass(errors.ReceiveTimeout, TimeoutError)


def test_every_error_answers_the_three_questions() -> None:
    classes = set(every_class())
    assert {getattr(errors, name) for name in errors.__all__} <= classes
    for error in classes:
        assert isinstance(error.connection_usable, bool)
        assert error.delivered in (True, False, None)
        assert isinstance(error.safe_to_retry, bool)
        if error.delivered is None:
            assert not error.safe_to_retry


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [error.__dict__.get("code") for error in every_class()]
    assert all(code is not None and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code) for code in codes)
    assert len(set(codes)) == len(codes)


def test_every_error_of_the_client_derives_from_the_base() -> None:
    """Errors that never reach an application are exempt."""
    raised = {each for each in subclasses(Exception) if each.__module__ in PUBLIC}
    assert {each.__name__ for each in raised - set(every_class())} <= INTERNAL


@pytest.mark.parametrize(
    "error",
    [
        errors.AuthenticationFailed,
        errors.TLSVerificationFailed,
        errors.ClusterURLError,
        errors.ConfigurationError,
        errors.SaslUnavailableError,
        errors.UndecodableMessage,
        errors.UnencodableValue,
        errors.WrongThread,
    ],
)
def test_a_call_that_would_fail_again_is_not_for_repeating(error: type[errors.HaclientError]) -> None:
    """Repeated attempts with wrong credentials may lock an account."""
    assert error.delivered is False
    assert not error.safe_to_retry
