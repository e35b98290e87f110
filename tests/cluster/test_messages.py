"""Messages without what the other side has: what comes out is what went in, and little is sent twice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from ooc_svm.cluster.messages import Changes, DeltaDecoder, DeltaEncoder

N_FEATURES = 10_000


@dataclass
class Request:
    w: np.ndarray
    reference: np.ndarray
    ids: np.ndarray
    name: str


@dataclass
class Answer:
    w: np.ndarray
    rebuilt: np.ndarray
    rows: np.ndarray


def sizes(message):
    """Bytes of the vectors in a message, those of changes by what they hold."""
    found = []
    for frame in message.frames:
        if isinstance(frame, Changes):
            found.append(frame.places.nbytes + frame.numbers.nbytes)
        elif frame.nbytes == 8 * N_FEATURES:
            found.append(frame.nbytes)
    return found


class Pair:
    """The client, and two workers."""

    def __init__(self):
        self.encoder = DeltaEncoder(8 * N_FEATURES)
        self.decoders = [DeltaDecoder(8 * N_FEATURES) for _ in range(2)]
        self.known = [{}, {}]

    def send(self, worker, request):
        message = self.encoder.encode(request, self.known[worker])
        got = self.decoders[worker].decode(message)
        for name, value in vars(request).items():
            np.testing.assert_array_equal(getattr(got, name), value)
        return sizes(message)

    def answer(self, worker, answer):
        message = self.decoders[worker].encode_answer(answer)
        return self.encoder.decode_answer(message), sizes(message)


@pytest.fixture
def pair():
    return Pair()


def request_of(seed=0, n_ids=3):
    w, reference = np.random.default_rng(seed).normal(size=(2, N_FEATURES))
    return Request(w, reference, np.arange(n_ids), "round")


WHOLE = 8 * N_FEATURES


def test_a_vector_that_was_sent_is_not_sent_again(pair):
    first, second = request_of(), request_of()
    second.w = np.random.default_rng(5).normal(size=N_FEATURES)
    assert pair.send(0, first) == [WHOLE, WHOLE]
    assert pair.send(0, second) == [WHOLE, 0]
    assert pair.send(1, second) == [WHOLE, WHOLE]
    second.w[7] = np.nan
    assert pair.send(0, second) == [12, 0]
    assert pair.send(1, second) == [12, 0]
    assert pair.send(1, second) == [0, 0]


def test_a_worker_that_missed_a_message_gets_all(pair):
    sent = request_of()
    for worker in (0, 1):
        pair.send(worker, sent)
    for step in range(2):
        sent.w[step] += 1.0
        assert pair.send(0, sent) == [12, 0]
    assert pair.send(1, sent) == [WHOLE, 0]


def test_a_change_in_place_is_seen(pair):
    sent = request_of()
    pair.send(0, sent)
    sent.w *= 2.0
    sent.reference[:10] = 0.0
    assert pair.send(0, sent) == [WHOLE, 120]


def test_other_arrays_may_be_of_any_size(pair):
    for n_ids in (0, 3, 10_000, 20_001, 7):
        pair.send(0, request_of(n_ids=n_ids))


def test_an_answer_goes_as_what_it_changes(pair):
    sent = request_of()
    pair.send(0, sent)
    answer = Answer(sent.w.copy(), np.random.default_rng(9).normal(size=N_FEATURES), np.arange(5))
    answer.w[[3, 9]] = -0.0
    got, n_bytes = pair.answer(0, answer)
    assert n_bytes == [24, WHOLE]
    for name, value in vars(answer).items():
        assert getattr(got, name).tobytes() == value.tobytes()
    # What is done to it is not done to what later messages are compared with.
    got.w[:] = 1.0
    got.rebuilt[:] = 1.0
    assert pair.send(0, sent) == [0, 0]
    got, n_bytes = pair.answer(0, Answer(sent.w, sent.reference, np.arange(1)))
    assert n_bytes == [0, 0]
    got.w[:] = 2.0
    assert pair.send(1, sent) == [WHOLE, WHOLE]


def test_an_answer_refers_to_what_it_answers_alone(pair):
    """Another worker may have been sent other vectors since."""
    both = request_of()
    for worker in (0, 1):
        pair.send(worker, both)
    changed = request_of(seed=1)
    pair.send(0, changed)
    one = Request(changed.w, np.empty(0), np.arange(3), "first read")
    pair.send(1, one)
    got, _ = pair.answer(1, Answer(both.reference, both.w, np.empty(0)))
    assert got.w.tobytes() == both.reference.tobytes()
    assert got.rebuilt.tobytes() == both.w.tobytes()
