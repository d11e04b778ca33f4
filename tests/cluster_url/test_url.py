"""The cluster URL: every form and every error, without ever showing a password."""

from __future__ import annotations

import dataclasses
import pickle
import traceback
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from haclient.cluster_url.endpoint import Endpoint, Origin
from haclient.cluster_url.errors import ClusterURLError
from haclient.cluster_url.options import Options
from haclient.cluster_url.seed import MASK, Secret, Seed
from haclient.cluster_url.url import ClusterURL

A = Endpoint("a", 5672)
B = Endpoint("b", 5672)
SA = Endpoint("a", 5671, tls=True)
SB = Endpoint("b", 5671, tls=True)
U = ("u", Secret("p"))

FORMS = [
    ("amqp://vip", [Seed(Endpoint("vip", 5672))]),
    ("amqps://vip", [Seed(Endpoint("vip", 5671, tls=True))]),
    ("AMQP://Broker-A.Example", [Seed(Endpoint("broker-a.example", 5672))]),
    ("amqp://a,b", [Seed(A), Seed(B)]),
    ("amqp://a,b/", [Seed(A), Seed(B)]),
    ("amqp://a,b,a:5672", [Seed(A), Seed(B)]),
    ("amqp://a:5672,a:5673", [Seed(A), Seed(Endpoint("a", 5673))]),
    (
        "amqps://u:p@a:5671,b,[::1]:5673",
        [Seed(SA, *U), Seed(SB, *U), Seed(Endpoint("::1", 5673, tls=True), *U)],
    ),
    ("amqp://u@a", [Seed(A, "u")]),
    ("amqp://u:@a", [Seed(A, "u", Secret(""))]),
    ("amqp://u:p:q@a", [Seed(A, "u", Secret("p:q"))]),
    ("amqp://u%40corp:%3A%2F%3f%23%2C%20%C3%A9@a", [Seed(A, "u@corp", Secret(":/?#, é"))]),
    ("amqp://127.0.0.1", [Seed(Endpoint("127.0.0.1", 5672))]),
    ("amqp://[2001:DB8:0:0::1]", [Seed(Endpoint("2001:db8::1", 5672))]),
    ("amqp://[fe80::1%25eth0]:1", [Seed(Endpoint("fe80::1%eth0", 1))]),
    ("amqp://bücher.example", [Seed(Endpoint("xn--bcher-kva.example", 5672))]),
    ("amqp://b%C3%BCcher.example", [Seed(Endpoint("xn--bcher-kva.example", 5672))]),
    ("amqp://broker_1", [Seed(Endpoint("broker_1", 5672))]),
    ("amqp://a.example.", [Seed(Endpoint("a.example.", 5672))]),
    ("amqp://a,amqp://b", [Seed(A), Seed(B)]),
    ("amqp://a/,amqp://b:5672/", [Seed(A), Seed(B)]),
    ("amqp://a,b,AMQPS://u:p@b", [Seed(A), Seed(B), Seed(SB, *U)]),
    ("amqp://u:p@a,amqp://b", [Seed(A, *U), Seed(B)]),
    ("failover:(amqp://a,amqps://u:p@b:5671)", [Seed(A), Seed(SB, *U)]),
    ("failover:(amqp://u:p@a,amqp://b)", [Seed(A, *U), Seed(B)]),
    ("FAILOVER:(AMQP://a)", [Seed(A)]),
    ("failover://(amqp://a,amqp://b)", [Seed(A), Seed(B)]),
    ("failover:amqp://a,amqp://b", [Seed(A), Seed(B)]),
    ("failover://amqp://a", [Seed(A)]),
    ("failover:(amqp://a/,amqp://b/)", [Seed(A), Seed(B)]),
    ("amqp+ssl://u:p@a", [Seed(SA, *U)]),
    ("AMQP+SSL://a:5671,b", [Seed(SA), Seed(SB)]),
    ("amqp+ssl://a:5671,amqp+ssl://b:5671", [Seed(SA), Seed(SB)]),
    ("amqp+ssl://a,amqps://b,amqp://b", [Seed(SA), Seed(SB), Seed(B)]),
    ("amqp+ssl://a:5671,amqps://a", [Seed(SA)]),
    ("failover:(amqp+ssl://a:5671,amqp+ssl://b:5671)", [Seed(SA), Seed(SB)]),
    ("amqp:tcp:a:5672,tcp:b:5672", [Seed(A), Seed(B)]),
    ("amqp:ssl:a:5671,tls:b", [Seed(SA), Seed(SB)]),
    ("amqp:tcp:a,ssl:b", [Seed(A), Seed(SB)]),
    ("amqp:u/p@tcp:a:5672,b", [Seed(A, *U), Seed(B, *U)]),
    ("amqp:u/p%2Fq@tcp:[::1]:5672", [Seed(Endpoint("::1", 5672), "u", Secret("p/q"))]),
    ("amqp:a", [Seed(A)]),
]

OPTIONS = [
    ("amqp://a/?deadline=60&window=5", Options(deadline=60.0, window=5)),
    ("amqp://a?vhost=a%20%26%40+b", Options(vhost="a &@+b")),
    ("amqp://a?", Options()),
    ("amqp://a,amqp://b/?deadline=60&window=5", Options(deadline=60.0, window=5)),
    ("failover:(amqp://a)?failover.deadline=5&credit=7", Options(deadline=5.0, credit=7)),
    ("failover:amqp://a,amqp://b?deadline=5", Options(deadline=5.0)),
    ("failover:(amqp://a?heartbeat=5,amqp://b?heartbeat=5)?credit=7", Options(heartbeat=5.0, credit=7)),
    ("failover:(amqp://a?sasl_mechanisms=PLAIN,EXTERNAL)", Options(sasl_mechanisms=("PLAIN", "EXTERNAL"))),
    (
        (
            "failover:(amqp://a)?failover.reconnectDelay=50&failover.maxReconnectDelay=3000"
            "&failover.reconnectBackOffMultiplier=1.5&failover.maxReconnectAttempts=9"
        ),
        Options(backoff_base=0.05, backoff_max=3.0, backoff_factor=1.5, max_attempts=9),
    ),
    (
        "failover:(amqp://a)?initialReconnectDelay=50&maxReconnectAttempts=-1",
        Options(backoff_base=0.05, max_attempts=None),
    ),
    ("amqp:tcp:a:5672?deadline=5", Options(deadline=5.0)),
]

ERRORS = [
    ("", "empty"),
    ("broker:5672", "write amqp://broker:5672"),
    ("a:5672,b:5672", "write amqp://a:5672,b:5672"),
    ("broker", "write amqp://broker"),
    ("u:p@broker", "write amqp://host:port"),
    ("http://a", "unknown scheme 'http'"),
    ("tcp://a:5672", "unknown scheme 'tcp'"),
    ("amqp+ssl+srv://a", "unknown scheme 'amqp+ssl+srv'"),
    ("amqp+nio+ssl://a", "unknown scheme 'amqp+nio+ssl'"),
    ("amqp:/a", "starts with amqp://"),
    ("amqps:a", "starts with amqp://"),
    ("amqp://", "a host is missing"),
    ("amqp:///", "a host is missing"),
    ("amqp:", "a host is missing"),
    ("amqp://a,,b", "a host is missing"),
    ("amqp://a,", "a host is missing"),
    ("amqp://:5672", "a host is missing"),
    ("amqp://[]:5672", "a host is missing"),
    ("amqp://u:p@", "a host is missing"),
    ("amqp://a:", "host 'a': a port is a number"),
    ("amqp://a:0", "a port is a number"),
    ("amqp://a:65536", "a port is a number"),
    ("amqp://a:amqp", "a port is a number"),
    ("amqp://a:+1", "a port is a number"),
    ("amqp://a:\u0661", "a port is a number"),
    ("amqp://::1", "an IPv6 address needs brackets"),
    ("amqp://2001:db8::1", "an IPv6 address needs brackets"),
    ("amqp://[::1", "brackets"),
    ("amqp://[::1]x", "brackets"),
    ("amqp://[a]", "no IPv6 address between"),
    ("amqp://[127.0.0.1]", "no IPv6 address between"),
    ("amqp://[fe80::1%25]", "no IPv6 address between"),
    ("amqp://1.2.3", "neither an IPv4 address nor a host name"),
    ("amqp://1.2.3.256", "neither an IPv4 address nor a host name"),
    ("amqp://a..b", "is not a host name"),
    ("amqp://-a", "is not a host name"),
    ("amqp://a!", "is not a host name"),
    ("amqp://" + "a" * 64, "is not a host name"),
    ("amqp://" + "a." * 127 + "a", "is not a host name"),
    ("amqp://faß.de", "xn-- form"),
    ("amqp://" + "ü" * 64, "cannot be encoded"),
    ("amqp://a?window=5,amqp://b", "options hold for the whole cluster: write amqp://host:port,amqp://host"),
    (
        "amqp://a,amqp://b?window=5,amqp://c",
        "options hold for the whole cluster: write amqp://host:port,amqp",
    ),
    ("amqp://a,http://b", "each URL of a list starts with amqp:// or amqps://: write amqp://host:port,"),
    ("amqp+srv://a,amqp://b", "each URL of a list starts with amqp:// or amqps://: write amqp://host:port,"),
    ("amqp://a;amqp://b", "between two members stands a comma: write amqp://host:port,amqp://host:port/"),
    ("amqp://a,amqp://b/orders", "a cluster URL names brokers, not a queue: pass 'orders' to create_sender"),
    ("amqp://u:hunter2,amqp://b", "a port is a number from 1 to 65535; in a user or password write"),
    ("amqp://u:p@a,amqp://v:q@a", "amqp://a:5672 is listed twice, with different credentials"),
    ("amqp://a/orders", "a cluster URL names brokers, not a queue: pass 'orders' to create_sender"),
    ("amqp://a/?/orders", "name=value"),
    ("amqp://a#x", "no fragment"),
    ("amqp://a b", "no whitespace"),
    (" amqp://a", "no whitespace"),
    ("amqp://a\n", "no whitespace"),
    ("amqp://a\u200b", "no whitespace"),
    ("amqp://a\ud800", "no whitespace"),
    ("amqp://@a", "the user name before '@' is empty"),
    ("amqp://:p@a", "the user name before '@' is empty"),
    ("amqp://u:p@a,v:q@b", "user and password stand once"),
    ("amqp://u:p@x@a", "user and password stand once"),
    ("amqp://u:%zz@a", "two hexadecimal digits"),
    ("amqp://u:%ff@a", "UTF-8"),
    ("amqp://u:%00@a", "%00"),
    ("amqp://a?x", "name=value"),
    ("amqp://a?=5", "name=value"),
    ("amqp://a?credit=5&", "name=value"),
    ("amqp://a?vhost=a@b", "after the hosts"),
    ("amqp+srv://a,b", "has one name"),
    ("amqp+srv://a:5672", "no port or address"),
    ("amqp+srv://127.0.0.1", "no port or address"),
    ("amqps+srv://[::1]", "no port or address"),
    ("failover:", "each member of a failover list"),
    ("failover:()", "each member of a failover list"),
    ("failover:a", "each member of a failover list"),
    ("failover:(amqp://a,b)", "each member of a failover list"),
    ("failover:(tcp://a)", "each member of a failover list"),
    ("failover:(amqp+srv://a)", "each member of a failover list"),
    ("failover:(amqp://a", "one pair of parentheses"),
    ("failover:amqp://a)", "one pair of parentheses"),
    ("failover:((amqp://a))", "one pair of parentheses"),
    ("failover:(amqp://a)(amqp://b)", "one pair of parentheses"),
    ("failover:(amqp://a)/?credit=5", "one pair of parentheses"),
    ("failover:amqp://a?credit=5,amqp://b", "needs parentheses"),
    ("failover:(amqp://a/q)", "pass 'q' to create_sender"),
    ("failover:(amqp://u:p@a,amqp://u:q@a)", "amqp://a:5672 is listed twice, with different credentials"),
    ("amqp:u:p@tcp:a", "amqp:user/password@tcp:host:port"),
    ("amqp:tcp:a/q", "amqp:user/password@tcp:host:port"),
    ("amqp:rdma:a:5672", "more than one ':'"),
]

OPTION_ERRORS = [
    ("amqp://a?deadlin=5", "deadlin", "did you mean 'deadline'"),
    ("amqp://a?deadline=x", "deadline", "'x' is not a time"),
    ("amqp://a?deadline=5&deadline=6", "deadline", "given twice"),
    ("amqp://a?vhost=%zz", "vhost", "two hexadecimal digits"),
    ("amqp://a?reconnectDelay=5", "reconnectDelay", "unknown option"),
    ("failover:(amqp://a)?jms.username=x", "jms.username", "before the hosts"),
    ("failover:(amqp://a)?failover.randomise=true", "failover.randomise", "unknown option"),
    ("failover:(amqp://a?amqp.idleTimeout=5s)", "amqp.idleTimeout", "number of milliseconds"),
    (
        "failover:(amqp://a)?failover.startupMaxReconnectAttempts=5",
        "failover.startupMaxReconnectAttempts",
        "startup_d",
    ),
    ("failover:(amqp://a)?failover.reconnectDelay=5s", "failover.reconnectDelay", "number of milliseconds"),
    ("failover:(amqp://a)?failover.reconnectDelay=0", "failover.reconnectDelay", "out of range"),
    (
        "failover:(amqp://a)?reconnectDelay=5&backoff_base=1",
        "backoff_base",
        "already set by 'reconnectDelay'",
    ),
    ("failover:(amqp://a)?credit=5&failover.credit=5", "failover.credit", "already set by 'credit'"),
    ("failover:(amqp://a?credit=5,amqp://b)", "credit", "not the same in every member"),
    ("failover:(amqp://a,amqps://b?tls_verify=false)", "tls_verify", "not the same in every member"),
    ("failover:(amqp://a?credit=5,amqp://b?credit=6)", "credit", "not the same in every member"),
]


@pytest.mark.parametrize(("text", "seeds"), FORMS)
def test_every_form_gives_its_seed_list(text: str, seeds: list[Seed]) -> None:
    url = ClusterURL.parse(text)
    assert list(url.seeds) == seeds
    assert not url.srv
    assert {seed.endpoint.origin for seed in url.seeds} == {Origin.SEED}


@pytest.mark.parametrize(("text", "options"), OPTIONS)
def test_options_are_read_in_every_form(text: str, options: Options) -> None:
    assert ClusterURL.parse(text).options == options


@pytest.mark.parametrize(("scheme", "tls"), [("amqp", False), ("amqps", True)])
def test_an_srv_url_has_one_name_and_credentials(scheme: str, tls: bool) -> None:
    url = ClusterURL.parse(f"{scheme}+srv://u:p@Cluster.example/?credit=5")
    (seed,) = url.seeds
    assert (url.srv, seed.endpoint.host, seed.endpoint.tls) == (True, "cluster.example", tls)
    assert (seed.user, seed.password, url.options.credit) == ("u", Secret("p"), 5)


@pytest.mark.parametrize(("text", "part"), ERRORS)
def test_what_is_not_a_cluster_url_is_an_error_that_helps(text: str, part: str) -> None:
    with pytest.raises(ClusterURLError) as caught:
        ClusterURL.parse(text)
    assert part in str(caught.value)


@pytest.mark.parametrize(("text", "option", "part"), OPTION_ERRORS)
def test_a_wrong_option_is_an_error_that_names_it_as_written(text: str, option: str, part: str) -> None:
    with pytest.raises(ClusterURLError) as caught:
        ClusterURL.parse(text)
    assert caught.value.option == option
    assert option in str(caught.value)
    assert part in str(caught.value)


def test_tls_verifies_a_name_without_its_final_dot_and_an_address_without_its_zone() -> None:
    url = ClusterURL.parse("amqps://a.example.,[fe80::1%25eth0],b")
    assert [seed.endpoint.tls_name for seed in url.seeds] == ["a.example", "fe80::1", "b"]


def test_credentials_of_one_member_never_reach_the_next() -> None:
    seeds = ClusterURL.parse("failover:(amqp://u:p@a,amqp://b,amqp://v@c)").seeds
    assert [(seed.user, seed.password) for seed in seeds] == [("u", Secret("p")), (None, None), ("v", None)]


@pytest.mark.parametrize("text", [text for text, _ in FORMS] + [text for text, _ in OPTIONS])
def test_the_text_of_a_url_parses_to_the_same_url_but_for_passwords(text: str) -> None:
    url = ClusterURL.parse(text)
    assert ClusterURL.parse(str(url)) == masked(url)


def test_the_text_of_an_srv_url_is_one_again() -> None:
    assert (
        str(ClusterURL.parse("amqps+srv://u:p@x.example?credit=5")) == "amqps+srv://u:***@x.example/?credit=5"
    )


LABEL = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
HOSTS = st.one_of(
    st.lists(LABEL, min_size=1, max_size=3).map(".".join),
    st.ip_addresses().map(str),
)
CREDENTIALS = st.one_of(
    st.just((None, None)),
    st.tuples(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1),
        st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0")).map(Secret),
    ),
)
SEEDS = st.builds(
    lambda host, port, tls, who: Seed(Endpoint(host, port, tls), *who),
    HOSTS,
    st.integers(1, 65535),
    st.booleans(),
    CREDENTIALS,
)
OPTION_VALUES = st.builds(
    Options,
    deadline=st.none() | st.floats(0.001, 1e8),
    window=st.integers(1, 2**31 - 1),
    redirects=st.sampled_from(["members", "any", "none"]),
    tls_verify=st.booleans(),
    vhost=st.none()
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(
        lambda text: text.lower() != "none"
    ),
    sasl_mechanisms=st.none()
    | st.lists(st.sampled_from(["PLAIN", "EXTERNAL", "SCRAM-SHA-256"]), min_size=1, unique=True).map(tuple),
)


@given(
    seeds=st.lists(SEEDS, min_size=1, max_size=5, unique_by=lambda seed: seed.endpoint),
    options=OPTION_VALUES,
)
def test_every_url_survives_the_way_to_text_and_back(seeds: list[Seed], options: Options) -> None:
    url = ClusterURL(tuple(seeds), options=options)
    assert ClusterURL.parse(str(url)) == masked(url)


SECRET = "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        f"amqp://u:{SECRET}@a,b/?credit=5",
        f"amqps+srv://u:{SECRET}@a",
        f"failover:(amqp://a,amqp://u:{SECRET}@b)",
        f"amqp:u/{SECRET}@tcp:a",
    ],
)
def test_a_password_shows_itself_to_reveal_alone(text: str) -> None:
    url = ClusterURL.parse(text)
    again = pickle.loads(pickle.dumps(url))  # noqa: S301  (its own bytes)
    seen = [
        str(url),
        repr(url),
        f"{url}",
        repr(url.seeds),
        repr(dataclasses.asdict(url)),
        repr(again),
        str(again),
    ]
    seen += [f"{seed.password} {seed.password!r} {seed}" for seed in url.seeds]
    assert SECRET not in "".join(seen)
    assert "u:***@" in str(url)
    assert again == url
    assert next(seed.password.reveal() for seed in url.seeds if seed.password) == SECRET


@pytest.mark.parametrize(
    "text",
    [
        f"amqp://u:{SECRET}",
        f"amqp://u:{SECRET}@x@a",
        f"amqp://u:x@{SECRET}@a",
        f"amqp://u:x/{SECRET}@a",
        f"amqp://u:x?{SECRET}@a",
        f"amqp://u:x?{SECRET}=y@a",
        f"amqp://u:x?credit={SECRET}@a",
        f"amqp://u:x#{SECRET}@a",
        f"amqp://u:x {SECRET}@a",
        f"amqp://u:x,{SECRET}@a",
        f"amqp://u:%zz{SECRET}@a",
        f"amqp://u:%ff{SECRET}@a",
        f"amqp://u:{SECRET}@a/queue",
        f"amqp://u:{SECRET}@a?deadlin=5",
        f"amqp://u:{SECRET}@",
        f"amqp://:{SECRET}@a",
        f"amqp://u:{SECRET}:x",
        f"amqp:u:{SECRET}@tcp:a",
        f"amqp:u/{SECRET}@tcp:a:b:c",
        f"amqp:u/x?{SECRET}@tcp:a",
        f"amqp:/u/{SECRET}@a",
        f"u:{SECRET}@a",
        f"http+{SECRET}@a",
        f"failover:(amqp://u:{SECRET}@a",
        f"failover:(amqp://u:x){SECRET}@a)",
        f"failover:(amqp://u:x,{SECRET}@a)",
        f"failover:(amqp://u:x/{SECRET},y@a)",
        f"failover:(amqp://u:{SECRET}@a,b)",
        f"failover:(amqp://u:{SECRET}@a,amqp://u:x@a)",
        f"failover:amqp://u:x?credit={SECRET}@a",
    ],
)
def test_no_error_holds_a_password(text: str) -> None:
    with pytest.raises(ClusterURLError) as caught:
        ClusterURL.parse(text)
    error = caught.value
    shown = "".join(traceback.format_exception_only(error)) + repr(error) + repr(error.__context__)
    assert SECRET not in shown
    assert SECRET.encode() not in pickle.dumps(error)


@given(
    st.text(max_size=30), st.sampled_from(["amqp://u:{}@a", "amqp:u/{}@tcp:a", "failover:(amqp://u:{}@a)"])
)
@example("/", "amqp://u:{}@a")
@example("?credit=", "amqp://u:{}@a")
def test_no_error_holds_a_password_that_was_not_escaped(rest: str, form: str) -> None:
    try:
        url = ClusterURL.parse(form.format(f"{rest}{SECRET}"))
    except ClusterURLError as error:
        assert SECRET not in str(error)  # noqa: PT017  (most of these texts are no error)
    else:
        assert SECRET not in str(url)


def test_secrets_compare_by_their_text_and_hide_it() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1
    assert f"{Secret('a')}" == MASK


def masked(url: ClusterURL) -> ClusterURL:
    seeds = tuple(
        seed if seed.password is None else replace(seed, password=Secret(MASK)) for seed in url.seeds
    )
    return replace(url, seeds=seeds)


def test_an_option_that_looks_like_another_uri_is_read_as_it_was_written() -> None:
    written = ClusterURL.parse("failover:(amqp://a)?nested.amqp.vhost=,p://")
    assert ClusterURL.parse(str(written)) == written
