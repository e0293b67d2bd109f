"""A secret does not travel in the open: which there are, which channels are safe, and that none is in what is said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import SparkConf

from impls.addresses import has_secret, shown
from impls.catalog import make
from impls.durability.files import Files
from impls.errors import StateError, UsageError
from impls.operators import HashCount
from impls.spark.secrecy import check_channel, missing_of, secrets_of
from impls.transfer.settings import Transfer
from impls.worker.output import Output
from impls.worker.query import QuerySpec
from impls.worker.sinks import Nowhere

SECRET = "d3adb33f-secret"
SAFE = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
OPEN = ["spark.authenticate=true", "spark.network.crypto.enabled=true"]


def redis(url):
    return make("external-state", redis=url).shared


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        ((Output("b:1", "t", 1, {"sasl.password": SECRET}), None, None, "none"), "sasl.password of Output"),
        ((Output("b:1", "t", 1, {"ssl.key.pem": SECRET}), None, None, "none"), "ssl.key.pem of Output"),
        ((Output("b:1", "t", 1, {"sasl.oauthbearer.client.secret": SECRET}), None, None, "none"), "client.secret"),
        (
            (Output("b:1", "t", 1, {"sasl.oauthbearer.assertion.private.key.passphrase": SECRET}), None, None, "none"),
            "passphrase of Output",
        ),
        ((Nowhere(), redis(f"redis://:{SECRET}@h:6379/0"), None, "none"), "the store that all workers share"),
        ((Nowhere(), redis(f"redis://h:6379/0?password={SECRET}"), None, "none"), "the store that all workers share"),
        ((Nowhere(), None, f"s3://KEY:{SECRET}@bucket/a", "none"), "log_dir"),
        ((Nowhere(), None, None, "auto"), "the private key of tls=auto"),
    ],
)
def test_it_is_named(parts, word):
    (found,) = secrets_of(*parts)
    assert word in found
    assert SECRET not in found


def test_what_is_public_is_none():
    output = Output("b:1", "t", 1, {"security.protocol": "SASL_SSL", "sasl.username": "u", "linger.ms": "1"})
    assert not secrets_of(output, redis("redis://h:6379/0"), "s3://bucket/a?region=eu", "none")


@pytest.mark.parametrize(
    "master", ["local[2,4]", "spark://127.0.0.1:7077", "spark://127.0.0.3:1,localhost:2", "local-cluster[2,1,1024]"]
)
def test_it_may_go_where_nothing_leaves_the_machine(master):
    assert not missing_of(master, {})


@pytest.mark.parametrize("master", ["spark://h:7077", "spark://127.0.0.1:7077,h:7077", "yarn", "k8s://https://h:6443"])
def test_it_goes_to_other_hosts_encrypted_or_by_the_users_word(master):
    assert missing_of(master, {}) == OPEN
    assert missing_of(master, {"spark.authenticate": "true"}) == OPEN[1:]
    assert missing_of(master, {"spark.network.crypto.enabled": "true"}) == OPEN[:1]
    assert missing_of(master, {**SAFE, "spark.authenticate": "false"}) == OPEN[:1]
    for settings in (
        SAFE, {"spark.authenticate": "true", "spark.ssl.rpc.enabled": "true"}, {"spark.rescale.trustedNetwork": "true"},
    ):  # fmt: skip
        assert not missing_of(master, settings)


@pytest.mark.parametrize(
    "url",
    [
        f" redis://:{SECRET}@host", f"redis:/:{SECRET}@host", f"{SECRET}:@host:6379", f"redis://:12/{SECRET}@host",
        f"rediss://u:12/{SECRET}@host", f"redis://:12#{SECRET}@host", f"redis://:p@ss#{SECRET}@host",
        f"redis://h:1/0?pwd={SECRET}", f"redis://:{SECRET}@[::1]:6379/0", f"u:{SECRET}@host",
    ],
)  # fmt: skip
def test_an_address_with_a_slip_in_it_shows_nothing(url):
    assert has_secret(url)
    assert SECRET not in shown(url)


@pytest.mark.parametrize(
    "url",
    [
        "abfss://container@account.dfs.core.windows.net/p", "hdfs://me@namenode/p", "redis://me@h:6379/0", "/a@b:c",
        "./a@b", "~/a:b@c", "s3://bucket/a@b", "redis://[::1]:6379/0", "host:6379", "C:/data", "results", "",
    ],
)  # fmt: skip
def test_a_name_before_the_host_and_a_path_are_shown(url):
    assert not has_secret(url)


def test_settings_are_read_as_spark_reads_them():
    conf = SparkConf(loadDefaults=False).set("spark.authenticate", True).set("spark.network.crypto.enabled", "TRUE")
    assert not missing_of("yarn", dict(conf.getAll()))


def test_a_master_behind_a_tunnel_is_not_this_machine():
    assert missing_of("spark://localhost:7077", {"spark.driver.host": "10.0.0.7"}) == OPEN
    assert not missing_of("spark://localhost:7077", {"spark.driver.host": "127.0.0.1"})


def test_the_start_is_refused_with_what_is_missing():
    secrets = secrets_of(Output("b:1", "t", 1, {"sasl.password": SECRET}), None, None, "auto")
    conf = SparkConf(loadDefaults=False).setMaster("spark://h:7077").set("spark.authenticate", "true")
    with pytest.raises(UsageError) as error:
        check_channel(conf, secrets)
    assert str(error.value) == (
        "Spark would send sasl.password of Output, the private key of tls=auto to other hosts in the open: set "
        "spark.network.crypto.enabled=true for the session, as in spark-defaults.conf, or "
        "spark.rescale.trustedNetwork=true where nobody else reads the network."
    )
    check_channel(conf, [])
    check_channel(conf.set("spark.network.crypto.enabled", "true"), secrets)


def test_no_part_of_a_query_shows_it():
    """What is printed, logged or raised may hold any part of a query as text."""
    url = f"s3://KEY:{SECRET}@bucket/a"
    transfer = Transfer.new(b"CERT", SECRET.encode())
    mechanism = make("external-state", redis=f"redis://u:{SECRET}@h:6379/0?password={SECRET}")
    output = Output("b:1", "t", 1, {"sasl.password": SECRET})
    spec = QuerySpec("q", 16, HashCount(), output, "/s", Files(url), mechanism.shared, transfer)
    shown = [repr(spec), repr(mechanism), str(mechanism), mechanism.shared.address, spec.files.place]
    assert not [text for text in shown if SECRET in text or transfer.token.hex() in text or str(transfer.token) in text]


@given(st.from_regex(r"[a-z]{1,5}://[ -~]{0,30}", fullmatch=True) | st.text())
def test_every_address_can_be_shown_and_is_shown_in_one_way(text):
    assert shown(shown(text)) == shown(text)
    assert not has_secret(shown(text))


@given(st.text("abcXYZ019%-_.~!", max_size=9), st.booleans())
def test_a_password_of_whatever_form_is_not_shown(more, in_query):
    password = SECRET + more
    url = f"redis://h:1/0?password={password}&db=0" if in_query else f"redis://u:{password}@h:1/0"
    assert has_secret(url)
    assert SECRET not in shown(url)
    assert "h:1/0" in shown(url)


@given(st.sampled_from(["s3", "gs", "abfs", "nowhere", "hdfs"]), st.sampled_from(["", "?region=%zz", "?a=[", "/x y"]))
def test_no_refusal_of_a_folder_shows_it(scheme, rest):
    with pytest.raises((UsageError, StateError)) as error:
        Files(f"{scheme}://KEY:{SECRET}@[bucket/a{rest}").make_folders(["x"])
    assert SECRET not in str(error.value)
    assert error.value.__cause__ is None or SECRET not in str(error.value.__cause__)
