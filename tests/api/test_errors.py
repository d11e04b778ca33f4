"""Errors carry facts, survive pickling, and are proton's as well."""

from __future__ import annotations

import inspect
import pickle

import proton
import pytest

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
    errors.ConnectionClosed("closed", delivered=None),
    errors.LinkRefused("refused", "amqp:not-found"),
    errors.LinkTimeout("late"),
    errors.LinkClosed("closed", "amqp:link:detach-forced", delivered=None),
    errors.SendTimeout("late", delivered=None),
    errors.SendTimeout("late", delivered=False, duplicate_id="the id"),
    errors.ReceiveTimeout("late"),
    errors.DeliveryUnknown("unknown"),
    errors.MessageNotAccepted("rejected", REJECTED),
    errors.StaleDelivery("stale"),
    errors.AlreadySettled("twice"),
    errors.WrongThread("wrong"),
    errors.ResolutionError("broker.test", "no such name"),
    errors.ClusterURLError("unknown option 'x'", "x"),
    errors.SaslUnavailableError("no SCRAM here"),
]
PROTONS = {
    proton.ConnectionException: [
        errors.ConnectionGaveUp,
        errors.DeadlineExceeded,
        errors.AuthenticationFailed,
        errors.TLSVerificationFailed,
        errors.ConnectionClosed,
    ],
    proton.LinkException: [
        errors.LinkRefused,
        errors.LinkClosed,
        errors.DeliveryUnknown,
        errors.MessageNotAccepted,
        errors.StaleDelivery,
        errors.AlreadySettled,
    ],
    proton.Timeout: [errors.DeadlineExceeded, errors.LinkTimeout, errors.SendTimeout, errors.ReceiveTimeout],
}


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_with_all_its_facts(error: Exception) -> None:
    copied = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(copied) is type(error)
    assert (str(copied), vars(copied)) == (str(error), vars(error))


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
    classes = [getattr(errors, name) for name in errors.__all__]
    for error in (c for c in classes if inspect.isclass(c) and issubclass(c, errors.HaclientError)):
        assert isinstance(error.connection_usable, bool)
        assert error.delivered in (True, False, None)
        assert isinstance(error.safe_to_retry, bool)
        if error.delivered is None:
            assert not error.safe_to_retry
