"""Kernels on disk: round trips, damage, other versions, folders that can't be written."""

import os

import pytest

from minitvm.codegen import cache
from minitvm.codegen.cache import KernelCache, Store, cache_key
from minitvm.remarks import collect
from minitvm.transform import PassContext


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "cache")


def test_what_is_put_is_got(store):
    files = {"a": b"\0\1", "b": b"", "c": b"x" * 100_000}
    assert store.get("k" * 8) is None
    assert store.put("k" * 8, files)
    assert store.get("k" * 8) == files
    store.put("k" * 8, {"a": b"new"})
    assert store.get("k" * 8) == {"a": b"new"}


def test_damaged_entries_are_dropped_and_made_again(store):
    store.put("key00", {"a": b"hello" * 10})
    path = next(store.directory.rglob("*.entry"))
    whole = path.read_bytes()
    for damaged in (b"", whole[:20], whole[:-1], whole + b"x",
                    *(whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1:] for i in (0, 33, 45, 80))):
        path.write_bytes(damaged)
        assert store.get("key00") is None and not path.exists()
        store.put("key00", {"a": b"hello" * 10})
        assert store.get("key00") == {"a": b"hello" * 10}


def test_no_half_written_files_stay(store, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    assert not store.put("key00", {"a": b"1"})
    assert [path for path in store.directory.rglob("*") if path.is_file()] == []


def test_the_context_says_where(tmp_path):
    with PassContext(config={"cache.directory": None}):
        assert KernelCache.current() is None
    with PassContext(config={"cache.directory": str(tmp_path)}):
        kernels = KernelCache.current()
        assert kernels.get("k") is None
        kernels.put("k", "def k(): ...", b"object")
        found = kernels.get("k")
        assert (found.text, found.object) == ("def k(): ...", b"object")
    assert KernelCache.current() is not None


def test_a_folder_that_can_not_be_written_is_a_remark(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with collect() as remarks:
        KernelCache(Store(tmp_path / "file")).put("k", "text", b"object")
    assert "can't be written to" in str(remarks[0])


def test_keys_change_with_the_parts_and_with_the_sources(monkeypatch):
    assert cache_key("ab", "c") != cache_key("a", "bc")
    before = cache_key("a")
    assert before == cache_key("a")
    monkeypatch.setattr(cache, "source_digest", lambda: "another version of minitvm")
    assert cache_key("a") != before
