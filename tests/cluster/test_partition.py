"""Which worker holds which rows, and what is written of them: whole segments, even shares, newest entries."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest
from helpers.problems_data import cut_rows, noisy_rows

from ooc_svm.cluster import shared_vectors
from ooc_svm.cluster.partition import Partitioning, assign_segments
from ooc_svm.cluster.shared_vectors import SharedVectors, load_partition, write_partitions
from ooc_svm.data.blocks import row_slices
from ooc_svm.engine.merge import cut_segments
from ooc_svm.errors import DamageError, StorageError
from ooc_svm.passes.base import RowSet, rows_of
from ooc_svm.rowvectors import collection
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.solvers.streamed_smo.rounds import cut_rounds
from ooc_svm.system import private_folders
from ooc_svm.system.address import address_of
from ooc_svm.system.folders import shared_folder

N_ROWS = 4000


@pytest.fixture(scope="module")
def matrix():
    return noisy_rows(N_ROWS, 20)[0]


def rows_in(segment):
    return [row for part in segment for row in range(part.start, part.stop, part.step)]


@pytest.mark.parametrize("n_blocks", [1, 3, 7, 100, 500])
def test_coarser_segments_are_made_of_finer_ones(matrix, n_blocks):
    blocks = cut_rows(matrix, n_blocks)
    finest = {segment[0].start for segment in cut_segments(blocks, 0)}
    for n_features in (10, 10**2, 10**3, 10**4, 10**5):
        segments = cut_segments(blocks, n_features)
        assert {segment[0].start for segment in segments} <= finest
        assert sum(map(len, segments)) == len(blocks)


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("n_blocks", [2, 7, 30, 300])
def test_lanes_have_all_rows_once(matrix, n_blocks, lanes):
    rounds = [each.rows for each in cut_rounds(cut_rows(matrix, n_blocks), 20, lanes)]
    rows = rows_of(rounds)
    assert [row for segment in rows.segments for row in rows_in(segment)] == list(range(N_ROWS))
    assert len(rows.segments) & (len(rows.segments) - 1) == 0
    partitioning = Partitioning.of_lanes(rounds)
    for each in rounds:
        for segment in each.segments:
            inside = [partitioning.partitions[number] for number in partitioning.numbers(segment)]
            assert all(
                any(partition.start <= row < partition.stop for partition in inside)
                for row in rows_in(segment)
            )
            assert len(inside) <= 1


@pytest.mark.parametrize("n_workers", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("n_blocks", [2, 30, 300])
def test_the_lanes_of_a_round_spread_over_the_workers(matrix, n_blocks, n_workers):
    rounds = cut_rounds(cut_rows(matrix, n_blocks), 20, 4)
    partitioning = Partitioning.of_lanes([each.rows for each in rounds])
    owners = partitioning.assign(n_workers, 1)
    rows = np.zeros(n_workers)
    for each in rounds:
        assigned = assign_segments(each.rows, each.prefetch, partitioning, owners, n_workers, anywhere=False)
        assert sorted(number for own in assigned.segments for number in own) == [0, 1, 2, 3]
        busy = [n for n, part in enumerate(assigned.rows) if part.n_ranges]
        full = sum(map(bool, each.rows.segments))
        assert len(busy) >= min(full, n_workers) - (full < 4)
        rows += [sum(len(rows_in(s)) for s in part.segments) for part in assigned.rows]
    assert rows.sum() == N_ROWS
    if n_workers <= 4 and n_blocks > 2:
        assert rows.max() < 1.4 * N_ROWS / n_workers


@pytest.mark.parametrize("n_workers", [1, 2, 3, 5])
def test_segments_of_any_pass_lie_with_one_worker_each(matrix, n_workers):
    blocks = cut_rows(matrix, 200)
    partitioning = Partitioning.of_blocks(blocks)
    coarse = RowSet(cut_segments(blocks, 10**4))
    count = len(coarse.segments)
    assert count < len(partitioning)
    assigned = assign_segments(
        coarse, (), partitioning, partitioning.assign(n_workers, count), n_workers, anywhere=False
    )
    assert sorted(number for own in assigned.segments for number in own) == list(range(count))
    if count % n_workers:
        owners = partitioning.assign(n_workers, len(partitioning))
        assert assign_segments(coarse, (), partitioning, owners, n_workers, anywhere=False) is None
        assert assign_segments(coarse, (), partitioning, owners, n_workers, anywhere=True) is not None


def test_a_pass_across_the_partitions_is_refused(matrix):
    blocks = cut_rows(matrix, 3)
    partitioning = Partitioning.of_lanes([each.rows for each in cut_rounds(blocks, 20, 4)])
    with pytest.raises(ValueError, match="across the partitions"):
        partitioning.numbers([part for segment in cut_segments(blocks, 0) for part in segment])


class TestSharedVectors:
    @pytest.fixture
    def partitions(self, matrix):
        return Partitioning.of_blocks(cut_rows(matrix, 9)).partitions

    @pytest.fixture
    def vectors(self, tmp_path, partitions):
        vectors = SharedVectors(tmp_path, partitions)
        vectors.create("dual", np.float64)
        vectors.create("code", np.uint16, fill=3)
        return vectors

    def test_begin_with_their_first_value(self, vectors):
        assert (vectors["dual"].read(0, N_ROWS) == 0.0).all()
        assert (vectors["code"].read(10, 20) == 3).all()

    def test_are_what_was_written_last(self, vectors, partitions, tmp_path):
        """By the client in any ranges, by workers in partitions."""
        rng = np.random.default_rng(0)
        expected = {"dual": np.zeros(N_ROWS), "code": np.full(N_ROWS, 3, np.uint16)}
        for _ in range(30):
            name = ("dual", "code")[rng.integers(2)]
            if rng.random() < 0.5:
                start, stop = np.sort(rng.integers(0, N_ROWS + 1, 2)).tolist()
                part = rng.integers(0, 99, stop - start).astype(expected[name].dtype)
                vectors[name].write(start, part)
                expected[name][start:stop] = part
            else:
                numbers = rng.choice(len(partitions), 2, replace=False).tolist()
                self.work(vectors, partitions, sorted(numbers), ["dual", "code"], rng, expected)
            for each, entries in expected.items():
                np.testing.assert_array_equal(vectors[each].read(0, N_ROWS), entries)
        # Files that hold nothing any more are gone.
        used = {vectors.saved(name, k).path for name in expected for k in range(len(partitions))
                if vectors.saved(name, k)}  # fmt: skip
        assert {str(path) for path in tmp_path.iterdir()} == used

    def work(self, vectors, partitions, numbers, names, rng, expected):
        """What a worker does: take partitions as they were saved, change them, write them."""
        own = RowVectors(N_ROWS, 1 << 20, held=[(partitions[k].start, partitions[k].stop) for k in numbers])
        for name in names:
            dtype, fill = vectors.kind(name)
            own.create(name, dtype, fill)
            for k in numbers:
                if vectors.saved(name, k) is not None:
                    load_partition(own, name, partitions[k], vectors.saved(name, k))
                partition, first = partitions[k], own.place(partitions[k].start)
                np.testing.assert_array_equal(
                    own[name].read(first, first + partition.n_rows),
                    expected[name][partition.start : partition.stop],
                )
                part = rng.integers(0, 99, partition.n_rows).astype(dtype)
                own[name].write(first, part)
                expected[name][partition.start : partition.stop] = part
        path = vectors.new_path()
        with open(path, "xb") as file:
            checksums = write_partitions(file, own, names, [partitions[k] for k in numbers])
        vectors.commit(path, names, numbers, checksums)

    @pytest.mark.parametrize("lanes", [False, True])
    def test_in_a_bucket_are_loaded_by_writing_each_partition_once(self, matrix, lanes, monkeypatch):
        blocks, objects, writes = cut_rows(matrix, 9), {}, []
        partitioning = Partitioning.of_blocks(blocks)
        if lanes:
            partitioning = Partitioning.of_lanes([each.rows for each in cut_rounds(blocks, 20, 4)])

        def write(path, fill):
            writes.append(path)
            fill(file := io.BytesIO())
            objects[path] = file.getvalue()

        monkeypatch.setattr(shared_vectors, "atomic_write", write)
        monkeypatch.setattr(shared_vectors, "_open", lambda path: io.BytesIO(objects[path]))
        monkeypatch.setattr(shared_vectors, "remove_file", objects.pop)
        monkeypatch.setattr(collection, "row_slices", lambda n_rows: row_slices(n_rows, 10))
        vectors = SharedVectors(address_of("s3://bucket/run"), partitioning.partitions)
        vectors.create("dual", np.float64)
        entries = np.random.default_rng(2).random(N_ROWS)
        vectors.load("dual", io.BytesIO(entries.tobytes()))
        np.testing.assert_array_equal(vectors["dual"].read(0, N_ROWS), entries)
        assert len(writes) == len(objects) == sum(own.n_rows > 0 for own in partitioning.partitions)

    def test_that_are_damaged_are_noticed(self, vectors, partitions):
        rng = np.random.default_rng(1)
        expected = {"dual": np.zeros(N_ROWS)}
        self.work(vectors, partitions, [0, 1], ["dual"], rng, expected)
        saved = vectors.saved("dual", 1)
        own = RowVectors(N_ROWS, 1 << 20, held=[(partitions[1].start, partitions[1].stop)])
        own.create("dual", np.float64)
        with open(saved.path, "r+b") as file:
            file.seek(saved.offset + 5)
            byte = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte[0] ^ 1]))
        with pytest.raises(DamageError, match="not as they were written"):
            load_partition(own, "dual", partitions[1], saved)
        # The client notices it in any part of them, and reads what is beside it.
        with pytest.raises(DamageError, match="not as they were written"):
            vectors.read("dual", partitions[1].stop - 1, partitions[1].stop)
        for start, stop in (
            (partitions[0].start, partitions[0].stop),
            (partitions[0].stop - 2, partitions[0].stop),
        ):
            assert vectors.read("dual", start, stop).tolist() == expected["dual"][start:stop].tolist()
        os.truncate(saved.path, saved.offset + 8)
        with pytest.raises(DamageError, match="not as they were written"):
            load_partition(own, "dual", partitions[1], saved)
        os.unlink(saved.path)
        with pytest.raises(StorageError, match="cannot be read"):
            load_partition(own, "dual", partitions[1], saved)


class TestSharedFolder:
    def test_is_private_and_gone_at_the_end(self, tmp_path):
        with shared_folder(tmp_path, "rows") as folder:
            (folder / "file").touch()
            assert folder.stat().st_mode & 0o777 == 0o700
        assert not list(tmp_path.iterdir())

    def test_those_of_dead_runs_are_removed(self, tmp_path):
        for name in ("rows-0123456789abcdef", "rows-other"):
            os.close(private_folders.make(tmp_path / name))
        held = private_folders.make(tmp_path / "rows-fedcba9876543210")
        with shared_folder(tmp_path, "rows"):
            assert not (tmp_path / "rows-0123456789abcdef").exists()
            assert (tmp_path / "rows-other").exists()
            assert (tmp_path / "rows-fedcba9876543210").exists()
        os.close(held)

    def test_that_cannot_be_made_is_said(self, tmp_path):
        with (
            pytest.raises(StorageError, match="give checkpoint a folder"),
            shared_folder(tmp_path / "none", "rows"),
        ):
            pass
