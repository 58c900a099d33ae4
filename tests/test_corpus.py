"""A few hostile inputs for every reader of files; ``benchmarks/soak_fuzz.py`` has thousands."""

import time

import pytest

import corpus
from prism_marl.errors import UserError


@pytest.mark.parametrize("reader", corpus.READERS, ids=lambda reader: reader.name)
def test_a_hostile_file_is_a_result_or_a_sentence(reader, tmp_path):
    (tmp_path / "sound").mkdir()
    reader.read(reader.write(tmp_path / "sound"))
    for number in range(6):
        place = tmp_path / str(number)
        place.mkdir()
        assert corpus.attack(reader, f"short-{number}", place).fault == "", f"short-{number}"


def test_a_fault_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "SECONDS", 1)
    faults = {
        "took more than": lambda path: time.sleep(5),
        "took more than 1024 MiB": lambda path: bytes(2**31),
        "KeyError": lambda path: {}["x"],
        "several lines": lambda path: (_ for _ in ()).throw(UserError("one\ntwo")),
    }
    for index, (words, read) in enumerate(faults.items()):
        place = tmp_path / str(index)
        place.mkdir()
        reader = corpus.READERS[0]._replace(read=read)
        assert words in corpus.attack(reader, "x", place).fault
