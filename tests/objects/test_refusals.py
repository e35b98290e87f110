"""What a user is told of requests that fail, of names that are wrong, and of variables that are."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.object_places import Place, train, write_small
from helpers.object_server import Request

import ooc_svm
from ooc_svm.errors import DamageError, InputError, StorageError, UsageError
from ooc_svm.store import open_store
from ooc_svm.store.layout import BUILDING
from ooc_svm.system import objects
from ooc_svm.system.objects import Bucket


@pytest.fixture
def stored(place: Place, local: Path) -> str:
    write_small(local / "rows.svm", place / "rows.zarr")
    return place / "rows.zarr"


@pytest.mark.parametrize("kind", [503, "cut"])
def test_a_service_that_fails_is_asked_until_the_time_is_over(place: Place, kind, monkeypatch):
    """Not a number of times: pauses are short here, and most are drawn shorter still."""
    monkeypatch.setattr("ooc_svm.system.objects._LONGEST_PAUSE", 0.15)
    place.put("rows.svm", b"1 1:1\n")
    place.proxy.fault = lambda request, number: kind if place.proxy.fired < 20 else None
    assert place.read("rows.svm") == b"1 1:1\n"
    assert place.proxy.fired == 20


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [
        (400, "AuthorizationHeaderMalformed", "set the region of the bucket, for S3 in AWS_REGION"),
        (403, "RequestTimeTooSkewed", "set the clock of this machine, or renew the credentials"),
        (403, "AccessDenied", "see that these credentials may read, write and list there"),
    ],
)
def test_why_an_object_cannot_be_looked_at(place: Place, status, code, advice, monkeypatch):
    """Answers to HEAD have no body that would say so."""
    body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
    monkeypatch.setattr("helpers.object_server.ERROR_BODY", body)
    place.proxy.fault = lambda request, number: status
    with pytest.raises(StorageError) as raised:
        ooc_svm.load_model(place / "m")
    assert str(raised.value) == f"looking at {place / 'm'} failed: {code}: no; {advice}"


@pytest.mark.usefixtures("brief_repeating")
@pytest.mark.parametrize(
    ("kind", "reason"),
    [("drop", "the connection was closed before the answer (127.0.0.1:"), ("cut", "the answer was cut; ")],
)
def test_why_no_answer_came(place: Place, kind, reason):
    place.put("m", b"some bytes")
    place.proxy.fault = lambda request, number: kind if request.method == "GET" else None
    with pytest.raises(StorageError) as raised:
        ooc_svm.load_model(place / "m")
    assert f"reading {place / 'm'} failed: {reason}" in str(raised.value)


@pytest.mark.usefixtures("brief_repeating")
def test_a_server_that_is_not_there_is_named(place: Place, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StorageError, match=r"m failed: Connection refused \(127\.0\.0\.1:9\); see that"):
        ooc_svm.load_model(place / "m")


@pytest.mark.usefixtures("brief_repeating")
def test_text_that_cannot_be_read_is_waited_for_once(place: Place, tmp_path: Path):
    place.put("rows.svm", b"1 1:1\n")
    place.proxy.fault = lambda request, number: 503
    with place.proxy.counted() as found, pytest.raises(StorageError, match=r"reading .*rows\.svm failed"):
        ooc_svm.convert(place / "rows.svm", tmp_path / "a.zarr")
    assert {request.method for request in found} == {"GET"}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "AWS_ENDPOINT_URL",
            "localhost:9000",
            "AWS_ENDPOINT_URL is no address of a server; give it as https:",
        ),
        ("AWS_ENDPOINT_URL", "http://", "AWS_ENDPOINT_URL is no address of a server; "),
        ("AWS_ENDPOINT_URL", "http://my server", "AWS_ENDPOINT_URL is no address of a server; "),
        ("AWS_ENDPOINT_URL", "http://me:secret@host", "AWS_ENDPOINT_URL is no address of a server; "),
        ("AWS_ACCESS_KEY_ID", "no-secret\n", "AWS_ACCESS_KEY_ID has a blank or a line break in it; "),
        ("AWS_SESSION_TOKEN", "no-secret\n", "AWS_SESSION_TOKEN has a blank or a line break in it; "),
        ("AWS_REGION", "eu west 1", "AWS_REGION has a blank or a line break in it; "),
    ],
)
def test_variables_at_which_the_client_breaks_off(place: Place, name, value, message, monkeypatch):
    monkeypatch.setenv(name, value)
    with pytest.raises(InputError) as raised:
        ooc_svm.load_model(place / "m")
    assert str(raised.value).startswith(message)
    assert "secret" not in str(raised.value)


def test_a_client_that_breaks_off_ends_in_a_sentence(place: Place, monkeypatch):
    class PanicException(BaseException):
        pass

    def panic(*_: object, **__: object) -> None:
        raise PanicException("request valid: InvalidUri")

    monkeypatch.setattr(Bucket(place.address())._library, "head", panic)
    with pytest.raises(StorageError, match=r"m failed: request valid: InvalidUri; check the variables of"):
        ooc_svm.load_model(place / "m")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("s3:///a.zarr", "names no bucket; give s3://bucket/key"),
        ("s3://", "names no bucket; give s3://bucket/key"),
        ("https://", "names no server; give https://server/key"),
        ("s3://my data/a.zarr", "names a bucket with a blank in it"),
        ("s3://data/b//a.zarr", "has an empty part"),
        ("s3://data/b/../a.zarr", "has an empty part, . or .., "),
        ("s3://data/a\n.zarr", "or a control character; give another key"),
    ],
)
def test_addresses_of_nothing(address: str, message: str):
    with pytest.raises(UsageError) as raised:
        open_store(address)
    assert message in str(raised.value)


def test_what_is_no_store(place: Place):
    place.put("rows.svm", b"1 1:1\n")
    place.put("other/rows.svm", b"1 1:1\n")
    place.put(f"half.zarr/{BUILDING}", b"")
    for name, message in (
        ("none.zarr", "does not exist; check the path"),
        ("rows.svm", "is a file, not a Zarr store; convert it first: ooc-svm convert s3://"),
        ("other", "is not a Zarr store: it has no metadata of a group"),
        ("half.zarr", "is not a Zarr store yet: a run is writing it, or was killed; wait for it, or remove"),
    ):
        with pytest.raises(InputError) as raised:
            open_store(place / name)
        assert str(raised.value).startswith(f"{place / name} {message}")


def test_no_output_takes_the_name_of_a_store(place: Place, stored: str, local: Path):
    from ooc_svm.system.files import check_writable

    model = train(local / "rows.zarr")
    with pytest.raises(StorageError, match="is a Zarr store; give the name of a file to write"):
        ooc_svm.predict(model, local / "rows.zarr", output=stored)
    with pytest.raises(StorageError, match="is a Zarr store; give the name of a file to write"):
        check_writable(stored)


def test_predictions_that_cannot_be_written_are_not_made(place: Place, stored: str, local: Path):
    model = train(local / "rows.zarr")
    place.proxy.fault = lambda request, number: 403 if request.method == "PUT" else None
    with place.proxy.counted() as found, pytest.raises(StorageError, match="may read, write and list there"):
        ooc_svm.predict(model, stored, output=place / "labels")
    assert not [request for request in found if "rows.zarr/X/data/c/" in request.key]


def test_a_run_whose_checkpoints_cannot_be_written_does_not_begin(place: Place, stored: str):
    place.proxy.fault = lambda request, number: 403 if request.method == "PUT" else None
    with (
        place.proxy.counted() as found,
        pytest.raises(StorageError, match=r"states/checkpoint.* failed: .*may read, write and list there"),
    ):
        train(stored, checkpoint=place / "states")
    assert not [request for request in found if "rows.zarr/X/data/c/" in request.key]


@pytest.mark.parametrize("elapsed", ["401.2ms", "401.25µs", "401ns", "401s", "1.401s"])
def test_the_time_of_a_request_is_no_status(elapsed: str):
    said = f"Error performing PUT http://x/b/k in {elapsed} - Server returned status code: 403: no"
    failure = objects._failure("writing k", OSError(f"{said}\n\nDebug source: elapsed: {elapsed},"))
    assert "see that these credentials may read, write and list there" in str(failure)


@pytest.mark.usefixtures("brief_repeating")
def test_a_checkpoint_that_cannot_be_reached_is_not_damaged(place: Place, stored: str):
    train(stored, checkpoint=place / "states", max_passes=1)

    def fault(request: Request, number: int) -> int | None:
        return 503 if request.method == "GET" and request.key.endswith(".vectors") else None

    place.proxy.fault = fault
    with pytest.raises(StorageError, match=r"reading .*states/checkpoint-.* failed"):
        train(stored, checkpoint=place / "states", resume=True)
    assert place.proxy.fired


def test_verify_fetches_chunks_once_and_ahead(place: Place, stored: str):
    """Chunks that begin with the end of a block are fetched with either block."""
    with place.proxy.counted() as found:
        report = ooc_svm.verify_store(stored)
    own = ("/header/c/", "/chunk_sizes/c/", "/chunk_checksums/c/")  # of the manifest itself
    keys = [request.key for request in found if "/c/" in request.key]
    chunks = [key for key in keys if not any(part in key for part in own)]
    elements = [key for key in chunks if "/X/data/" in key or "/X/indices/" in key]
    others = set(chunks) - set(elements)
    assert {request.method for request in found} == {"GET"}
    assert len(chunks) - len(elements) == len(others)
    assert len(elements) <= len(set(elements)) + 2 * report.n_blocks
    assert len(set(chunks)) == report.n_chunks


def test_verify_of_a_bucket_that_lists_half_of_its_keys(place: Place, stored: str):
    place.proxy.fault = lambda request, number: "half" if "list-type" in request.query else None
    assert ooc_svm.verify_store(stored).n_rows == 1500
    place.proxy.fault = None


@pytest.mark.parametrize("name", ["uns/ooc_svm/tail_pointers/c/0", "X/data/zarr.json", "X/data/c/1"])
def test_verify_looks_at_what_opening_has_copies_of(place: Place, stored: str, name: str):
    content = bytearray(place.read(f"rows.zarr/{name}"))
    content[-1] ^= 1
    place.put(f"rows.zarr/{name}", bytes(content))
    open_store(stored)
    with pytest.raises(DamageError, match=name):
        ooc_svm.verify_store(stored)


def test_a_whole_bucket_is_no_file(place: Place):
    with pytest.raises(InputError, match="is not a Zarr store: it has no metadata of a group"):
        open_store(f"s3://{place.address().bucket}")
