"""The documents hold: their Python runs and prints what they show, their commands and links work.

In each file, the blocks of Python and the commands of consoles run one after the other, in a
process of their own (they may register operators) and in a folder that holds a small
`mobilenet_v2.onnx`. A block of `text` is what the Python before it prints; after a change that is
meant, `python tests/test_docs.py` writes what is printed now into the documents.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner

from minitvm import cli
from minitvm.codegen import link
from minitvm.runtime import abi
from minitvm.testing import zoo
from minitvm.transform import CONFIG_KEYS

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://)([^)#]+)")


@contextlib.contextmanager
def workplace(folder: Path) -> Iterator[None]:
    """A current folder with a model in it: MobileNetV2's shapes at the edges, few channels."""
    model = zoo.mobilenet_v2(weights=0, width=0.1)
    onnx.save(model, folder / "mobilenet_v2.onnx")
    with contextlib.chdir(folder):
        yield


def run_document(path: Path) -> str:
    """Runs what is in a document; gives the document with what it printed as blocks of text."""
    text = path.read_text()
    namespace: dict[str, object] = {"__name__": "__main__"}
    pieces, printed, end = [], "", 0
    for block in BLOCK.finditer(text):
        pieces.append(text[end:block.start()])
        kind, body, shown = block[1], block[2], block[0]
        if kind == "python":
            lines = "\n" * text.count("\n", 0, block.start(2))  # so that line numbers are right
            with contextlib.redirect_stdout(io.StringIO()) as stream:
                exec(compile(lines + body, path.name, "exec"), namespace)
            printed = "\n".join(line.rstrip() for line in stream.getvalue().rstrip().splitlines())
        elif kind == "console":
            run_commands(body)
        elif kind == "text":
            shown = f"```text\n{printed}\n```\n"
        pieces.append(shown)
        end = block.end()
    return "".join([*pieces, text[end:]])


def run_commands(console: str) -> None:
    """Runs the lines that start with `$ minitvm`, up to a comment or a pipe."""
    for line in console.splitlines():
        if line.startswith("$ minitvm "):
            words = shlex.split(line.partition(" | ")[0], comments=True)[2:]
            result = CliRunner().invoke(cli.main, words)
            assert result.exit_code == 0, f"{line}\n{result.output}"


def in_a_process(path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """`run_document` in `folder`; what it gives is the standard output."""
    with workplace(folder):
        return subprocess.run([sys.executable, __file__, path], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(ROOT)})


RUNS = re.compile("^```(python|console)", re.MULTILINE)
EXECUTED = [path for path in DOCUMENTS if RUNS.search(path.read_text())]


@pytest.mark.parametrize("path", EXECUTED, ids=lambda path: path.name)
def test_what_documents_show_is_so(path, tmp_path):
    done = in_a_process(path, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == path.read_text(), "if the change is meant, run: python tests/test_docs.py"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_in_documents_lead_somewhere(path):
    prose = re.sub(r"`[^`\n]*`", "", BLOCK.sub("", path.read_text()))
    for place in LINK.findall(prose):
        assert (path.parent / place).exists(), f"{path.name} links to {place}"


def test_files_named_in_documents_exist():
    """In `code` with a slash and a suffix: a path from the root, from the package, or a pattern."""
    name = re.compile(r"`((?:minitvm|tests|docs|examples|benchmarks)/[\w./*-]+)`")
    for path in DOCUMENTS:
        for found in name.findall(path.read_text()):
            assert list(ROOT.glob(found.rstrip("/"))), f"{path.name} speaks of {found}"


def test_the_tables_of_the_environment_are_complete():
    text = (ROOT / "docs" / "environment.md").read_text()
    listed = set(re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE))
    assert {name for name in listed if "." in name} == set(CONFIG_KEYS)
    sources = "".join(path.read_text() for path in ROOT.glob("minitvm/**/*.py"))
    reads = re.findall(r"environ(?:\.get\(|\[)(\w+|[\"']\w+)|getenv\((\S+)\)", sources)
    assert reads == [("OVERRIDE", "")] and link.OVERRIDE in listed  # all that the package reads


def test_the_error_codes_of_the_c_interface_are_complete():
    text = (ROOT / "docs" / "c-interface.md").read_text()
    rows = re.findall(r"^\| (\d+) \| `MINITVM_(\w+)` \| (.*) \|$", text, re.MULTILINE)
    assert rows == [(str(int(code)), code.name, abi.ERROR_TEXTS[code]) for code in abi.ErrorCode]
    assert all(f" {name}(" in text or f"*{name}(" in text for name in abi.function_names("net"))


def test_text_that_differs_is_found(tmp_path):
    path = tmp_path / "wrong.md"
    path.write_text("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n")
    assert run_document(path) == path.read_text().replace("3", "2")


def main(arguments: list[str]) -> None:
    """Prints a document with what its Python prints now; or brings all documents up to date."""
    if arguments:
        print(run_document(Path(arguments[0])), end="")
        return
    for path in EXECUTED:
        with tempfile.TemporaryDirectory() as folder:
            done = in_a_process(path, Path(folder))
        if done.returncode:
            sys.exit(done.stderr)
        path.write_text(done.stdout)
        print(os.path.relpath(path))


if __name__ == "__main__":
    main(sys.argv[1:])
