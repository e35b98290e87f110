"""How many requests are made, and what becomes of those that go wrong."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from helpers.object_places import SMALL, Place, same_models, train, write_small
from helpers.object_server import Proxy, Request, environment

import ooc_svm
from ooc_svm.errors import DamageError, InputError, StorageError, UsageError
from ooc_svm.store import open_store
from ooc_svm.store.metadata import LARGEST_METADATA
from ooc_svm.store.object_storage import PACK
from ooc_svm.store.verify import verify_store
from ooc_svm.system import objects
from ooc_svm.system.address import Address
from ooc_svm.system.objects import Bucket

MOST_TO_OPEN = 6


@pytest.fixture
def stored(place: Place, local: Path) -> str:
    write_small(local / "rows.svm", place / "rows.zarr")
    return place / "rows.zarr"


def test_opening_takes_a_handful_of_requests(place: Place, stored: str):
    with place.proxy.counted() as found:
        store = open_store(stored)
    assert len(store.blocks) > 10
    assert 2 <= len(found) <= MOST_TO_OPEN, found


def test_of_metadata_that_are_too_large_no_more_is_read(place: Place, monkeypatch):
    place.put("rows.zarr/zarr.json", bytes(2 * LARGEST_METADATA))
    sizes, read = [], Bucket.read

    def measured(self, *arguments):
        content = read(self, *arguments)
        sizes.append(len(content))
        return content

    monkeypatch.setattr(Bucket, "read", measured)
    with pytest.raises(DamageError, match=r"zarr.json is larger than 16 MiB: no metadata of Zarr"):
        open_store(place / "rows.zarr")
    assert max(sizes) == LARGEST_METADATA + 1


@pytest.mark.parametrize("missing", [0, 150, 299])
def test_all_is_removed_whatever_is_not_there(tmp_path: Path, monkeypatch, missing: int):
    """By a client that stops at the first object that is not there."""
    keys = [f"part/{number:03}" for number in range(300)]
    for key in keys:
        (tmp_path / key).parent.mkdir(exist_ok=True)
        (tmp_path / key).touch()
    (tmp_path / keys[missing]).unlink()
    client = pytest.importorskip("obstore.store").LocalStore(tmp_path)
    monkeypatch.setattr(objects, "_store_of", lambda *_: client)
    Bucket(Address("gs", "bucket", "")).remove(keys)
    assert list((tmp_path / "part").iterdir()) == []


def test_a_pass_fetches_each_chunk_once(place: Place, stored: str):
    """Two passes of little memory: twice the chunks that are read, and not one more."""
    n_chunks = sum(info.n_chunks for info, _ in open_store(stored).parts.chunk_sizes.values())
    options = {"solver": "ocas", "threads": 2, "tol": 1e-9}
    counts = {}
    for passes in (2, 4):
        with place.proxy.counted() as found:
            # Nothing is left for a cache of blocks.
            model = train(stored, max_passes=passes, **options)
        assert model.report["passes"] == passes
        counts[passes] = Counter(request.key for request in found if "/c/" in request.key)
    more = counts[4] - counts[2]
    assert more == {} or max(more.values()) <= 2
    elements = [key for key in counts[2] if "/X/" in key]
    assert len(elements) == n_chunks
    assert max(counts[2][key] for key in elements) <= 2


def test_reading_all_blocks_in_order_fetches_each_chunk_once(place: Place, stored: str):
    store = open_store(stored)
    with place.proxy.counted() as found:
        for span in store.blocks:
            if span.index + 1 < len(store.blocks):
                store.announce_block(span.index + 1)
            store.read_block(span.index)
    counts = Counter(request.key for request in found)
    assert max(counts.values()) == 1
    n_chunks = sum(info.n_chunks for info, _ in store.parts.chunk_sizes.values())
    assert n_chunks <= len(counts) <= 1.05 * n_chunks + 2  # and the tails


def test_labels_that_are_read_in_order_are_fetched_ahead(place: Place, stored: str):
    store = open_store(stored)
    n_chunks = -(-store.n_rows // SMALL["chunk_rows"])
    with place.proxy.counted() as found:
        for start in (0, 100):
            store.read_labels(start, start + 100)
        for coming in list(store.parts.storage._coming.values()):
            coming.result()
        labels = store.read_labels(0, store.n_rows)
    counts = Counter(request.key for request in found if "/obs/label/c/" in request.key)
    assert len(counts) == n_chunks > 5
    assert max(counts.values()) == 1
    assert len(found) == n_chunks  # nor was any fetched by the last read
    assert np.isfinite(labels).all()


def test_chunks_of_blocks_that_are_read_go_before_those_ahead(place: Place, stored: str):
    storage = open_store(stored).parts.storage
    storage.limit_ahead(1)
    keys = [f"X/indices/c/{index}" for index in range(4)]
    with place.proxy.counted() as found:
        for key in (*keys, keys[3]):
            storage.announce(key)
        for key in (keys[0], keys[3], keys[1], keys[2]):  # each that is read lets the next one begin
            storage.read(key, 0, 1)
    assert [request.key[-len(keys[0]) :] for request in found] == [keys[0], keys[3], keys[1], keys[2]]


def test_a_store_without_its_object_of_copies_is_opened_as_well(place: Place, stored: str):
    from ooc_svm.system.objects import Bucket

    expected = open_store(stored).id
    Bucket(place.address()).remove([place.address(f"rows.zarr/{PACK}").key])
    assert open_store(stored).id == expected
    place.put(f"rows.zarr/{PACK}", b"damaged beyond repair")
    assert open_store(stored).id == expected


def faults(seed: int, share: float, kinds: tuple[int | str, ...]):
    """Some of the requests are spoiled, each time in another way."""
    draw = random.Random(seed)

    def fault(request: Request, number: int) -> int | str | None:
        kind = draw.choice(kinds)
        if draw.random() >= share or (kind == "cut" and request.method != "GET"):
            return None
        return kind

    return fault


@pytest.mark.fault
def test_requests_that_fail_now_and_then_change_nothing(place: Place, local: Path, tmp_path: Path):
    """The same bits, from text to labels, with one request of twelve spoiled."""
    place.put("rows.svm", (local / "rows.svm").read_bytes())
    place.proxy.fault = faults(3, 1 / 12, (500, 503, 429, "drop", "cut"))
    write_small(place / "rows.svm", place / "rows.zarr")
    model = train(place / "rows.zarr", checkpoint=place / "states")
    ooc_svm.save_model(model, place / "m")
    ooc_svm.predict(place / "m", place / "rows.zarr", output=place / "labels")
    fired = place.proxy.fired
    place.proxy.fault = None
    assert fired > 20
    same_models(model, train(local / "rows.zarr"))
    assert ooc_svm.verify_store(place / "rows.zarr").n_rows == 1500
    expected = ooc_svm.predict(model, local / "rows.zarr")
    assert np.array_equal(np.array(place.read("labels").split(), float), expected)


@pytest.mark.fault
@pytest.mark.usefixtures("brief_repeating")
@pytest.mark.parametrize("kind", [503, "drop", "cut"])
def test_requests_that_fail_for_ever_end_the_run_with_a_sentence(place: Place, local: Path, kind):
    write_small(local / "rows.svm", place / "rows.zarr")
    for call, target in (
        (lambda: train(place / "rows.zarr"), "rows.zarr/X/indices"),
        (lambda: write_small(local / "rows.svm", place / "new.zarr"), "new.zarr/X/indices"),
    ):
        begun = place.proxy.fired

        def fault(request: Request, number: int, target: str = target) -> int | str | None:
            spoiled = target in request.key and "/c/1" in request.key and request.method in ("GET", "PUT")
            return kind if spoiled and (kind != "cut" or request.method == "GET") else None

        if kind == "cut" and "new" in target:
            continue
        place.proxy.fault = fault
        with pytest.raises(StorageError, match=rf"s3://data/\w+/{target}/c/1\d* failed: .*; ") as raised:
            call()
        place.proxy.fault = None
        assert place.proxy.fired > begun
        assert raised.value.exit_code == 5
        assert "a-key-that-must-not-be-seen" not in str(raised.value)
    assert not [key for key in place.keys("new.zarr") if key.endswith("zarr.json")]


@pytest.mark.usefixtures("brief_repeating")
@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [
        (403, "AccessDenied", "may read, write and list there"),
        (403, "RequestTimeTooSkewed", "set the clock of this machine"),
        (403, "SignatureDoesNotMatch", "give credentials as the cloud's own tools take them"),
        (301, "redirect", "AWS_REGION"),
        (404, "NoSuchBucket", "check the name of the bucket"),
    ],
)
def test_what_a_service_refuses_is_said_at_once(place: Place, stored: str, status, code, advice, monkeypatch):
    body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
    monkeypatch.setattr("helpers.object_server.ERROR_BODY", body)
    place.proxy.fault = lambda request, number: status
    with place.proxy.counted() as found, pytest.raises(StorageError, match=advice) as raised:
        open_store(stored)
    assert f"{stored}/zarr.json failed: " in str(raised.value)
    assert code in str(raised.value)
    assert len(found) <= 2


@pytest.mark.usefixtures("brief_repeating")
def test_no_credentials_and_no_server(place: Place, stored: str, monkeypatch, tmp_path: Path):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StorageError, match="see that the service can be reached from here"):
        open_store(stored)
    for name in environment(""):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "none.pem"))
    with pytest.raises(InputError, match=r"none\.pem' of AWS_CA_BUNDLE cannot be read: No such file"):
        open_store(stored)
    monkeypatch.delenv("AWS_CA_BUNDLE")
    with pytest.raises(StorageError, match="give credentials as the cloud's own tools take them"):
        open_store(stored)


def certificate_of_nobody(path: Path) -> Path:
    """A file with a key and a certificate of this machine that no authority has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 7, now - timedelta(1), now + timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.mark.usefixtures("brief_repeating")
def test_https_with_a_certificate_of_ones_own(place: Place, stored: str, monkeypatch, tmp_path: Path):
    expected = open_store(stored).id
    certificate = certificate_of_nobody(tmp_path / "own.pem")
    proxy = Proxy(place.proxy.upstream, certificate=certificate)
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    with pytest.raises(
        StorageError, match=r"not trusted here \(UnknownIssuer\); give the certificates of its"
    ):
        open_store(stored)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    assert open_store(stored).id == expected
    monkeypatch.delenv("AWS_CA_BUNDLE")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert open_store(stored.replace("s3:/", proxy.url)).id == expected
    proxy.close()


def test_a_store_on_a_web_server_is_verified(place: Place, stored: str):
    found = verify_store(stored.replace("s3:/", place.proxy.url))
    assert (found.manifest, found.n_rows) == (True, open_store(stored).n_rows)


def test_a_plan_tells_what_a_run_fetches_and_costs(place: Place, stored: str, local: Path, tmp_path: Path):
    store = open_store(stored)
    sizes = [sizes for _, sizes in store.parts.chunk_sizes.values()]
    n_bytes, n_chunks = sum(int(each.sum()) for each in sizes), sum(map(len, sizes))
    planned = ooc_svm.plan(stored, price_get=0.4, price_gb=10.0)
    # The blocks of so little data are in memory after the first read.
    assert planned.transfer.nbytes == n_bytes
    assert planned.transfer.requests == n_chunks + MOST_TO_OPEN
    assert planned.transfer.cost == pytest.approx(planned.transfer.requests * 0.4e-3 + n_bytes * 1e-8)
    assert planned.to_json()["transfer"]["nbytes"] == n_bytes
    assert planned.lines()[-1].startswith("from the bucket: ")
    assert planned.lines()[-1].endswith(", which cost 0.04")
    assert ooc_svm.plan(stored, price_get=1e-9).lines()[-1].endswith(", which cost less than 0.01")
    assert ooc_svm.plan(stored).transfer.cost is None
    cached = ooc_svm.plan(stored, cache=tmp_path / "cache", cache_size="10MB")
    assert cached.transfer.nbytes == n_bytes
    assert ooc_svm.plan(local / "rows.zarr").transfer is None
    with pytest.raises(UsageError, match="price_get and price_gb are for stores in a bucket"):
        ooc_svm.plan(local / "rows.zarr", price_gb=1.0)


def test_what_is_fetched_again_follows_from_both_caches(place: Place, stored: str, tmp_path: Path):
    from ooc_svm.options import TrainOptions
    from ooc_svm.training.transfer import Prices, transfer_of

    store = open_store(stored)
    n_bytes = sum(int(sizes.sum()) for _, sizes in store.parts.chunk_sizes.values())

    def fetched(cached_share: float, **options) -> float:
        budget, work = Mock(cache_bytes=1000 * cached_share), Mock(data_nbytes=1000)
        found = transfer_of(store, TrainOptions(**options), work, budget, 5, Prices())
        return found.nbytes / n_bytes

    assert fetched(0) == pytest.approx(5, rel=1e-4)
    assert fetched(0.25) == pytest.approx(4, rel=1e-4)
    assert fetched(0, cache=tmp_path, cache_size="10MB") == pytest.approx(1)


@pytest.mark.usefixtures("brief_repeating")
def test_proxies_of_the_environment_are_asked(place: Place, stored: str, monkeypatch):
    expected = open_store(stored).id
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://no-such-service.invalid")
    monkeypatch.setenv("HTTP_PROXY", place.proxy.url)
    monkeypatch.setenv("http_proxy", place.proxy.url)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with place.proxy.counted() as found:
        assert open_store(stored).id == expected
    assert len(found) >= 2
    monkeypatch.setenv("NO_PROXY", "no-such-service.invalid")
    with pytest.raises(StorageError, match="see that the service can be reached from here"):
        open_store(stored)


def test_a_bucket_that_is_not_there(place: Place, local: Path):
    model = train(local / "rows.zarr")
    for call in (
        lambda: open_store("s3://no-such-bucket/a.zarr"),
        lambda: ooc_svm.convert(local / "rows.svm", "s3://no-such-bucket/new.zarr"),
        lambda: ooc_svm.convert("s3://no-such-bucket/*.gz", local / "no.zarr"),
        lambda: ooc_svm.convert("s3://no-such-bucket/a.svm", local / "no.zarr"),
        lambda: ooc_svm.load_model("s3://no-such-bucket/m"),
        lambda: ooc_svm.predict(model, local / "rows.zarr", output="s3://no-such-bucket/labels"),
        lambda: train(local / "rows.zarr", checkpoint="s3://no-such-bucket/states"),
    ):
        with (
            place.proxy.counted() as found,
            pytest.raises(
                StorageError,
                match=r"^\w+ s3://no-such-bucket.* failed: .*; check the name of the bucket and its region$",
            ),
        ):
            call()
        assert max(Counter(found).values()) <= 2  # a refusal is not asked for again
