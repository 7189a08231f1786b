"""Everything leads back to the nodes of the model: bindings, statements, kernels, debug lines."""

import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from networks import context, small_network

import minitvm
from minitvm.driver import relay_passes
from minitvm.errors import VerifyError
from minitvm.instruments import VerifyEach
from minitvm.origin import NOWHERE, merge_all, parse_origin
from minitvm.relay.ir import Binding, Block, Module, walk_bindings
from minitvm.relay.onnx import from_onnx
from minitvm.relay.origins import check_origins_kept
from minitvm.relay.verify import verify as verify_relay
from minitvm.testing import zoo
from minitvm.tir import ir, walk
from minitvm.tir.verify import verify as verify_tir
from minitvm.tir.walk import walk_statements
from minitvm.transform import Pass


@pytest.fixture(scope="module")
def nodes(mobilenet):
    return {node.name for node in mobilenet.model.graph.node}


class Bindings:
    """Looks at every binding that any pass over relay gives."""

    def __init__(self, nodes):
        self.nodes, self.seen = nodes, 0

    def run_before_pass(self, name, before):
        self.run_after_pass(name, None, before)

    def run_after_pass(self, name, before, after):
        for function in after.functions.values():
            for binding in walk_bindings(function.body):
                self.seen += 1
                assert binding.origin.names and set(binding.origin.names) <= self.nodes, (
                    name, binding.var, binding.origin)


def test_every_binding_of_every_stage_names_its_nodes(mobilenet, nodes):
    look = Bindings(nodes)
    with context(instruments=[look, VerifyEach(verify_relay, check_origins_kept)]):
        after = relay_passes(mobilenet.compiled.target)(from_onnx(mobilenet.model, {}))
    assert look.seen > 10 * len(nodes)
    kept = merge_all(b.origin for f in after.functions.values() for b in walk_bindings(f.body))
    assert set(kept.names) == nodes, "no node is lost on the way"


def test_every_statement_and_kernel_names_its_nodes(mobilenet, nodes):
    for kernel in mobilenet.compiled.kernels:
        verify_tir(kernel.func, "machine", require_origins=True)
        found = set()
        for statement in walk_statements(kernel.func.body):
            if isinstance(statement, ir.Store | ir.Invoke):
                assert statement.origin.names
                for name in statement.origin.names:
                    found |= set(kernel.line_origins[name].names)
        assert found and found <= nodes, kernel.name
        assert found == {n for o in kernel.line_origins.values() for n in o.names}


def test_every_call_of_main_names_its_own_nodes(mobilenet, nodes):
    body = mobilenet.compiled.main.body
    calls = [s for s in walk_statements(body) if isinstance(s, ir.Invoke)]
    named = [name for call in calls for name in call.origin.names]
    assert all(call.origin.names for call in calls)
    convolutions = [name for name in named if name.startswith("Conv_")]
    assert len(convolutions) == len(set(convolutions)), "each in one call"
    views = {name for name in nodes if name.startswith("Flatten")}
    assert set(named) >= nodes - views


needs_objdump = pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not on PATH")


@needs_objdump
def test_every_debug_line_leads_to_nodes(mobilenet, nodes, tmp_path):
    """Each line of the line table is a line of the kernel's text, whose origin leads to nodes."""
    for kernel in mobilenet.compiled.kernels:
        (tmp_path / "kernel.o").write_bytes(kernel.object)
        table = subprocess.run(["objdump", "--dwarf=decodedline", str(tmp_path / "kernel.o")],
                               capture_output=True, text=True, check=True).stdout
        numbers = {int(n) for n in re.findall(r"\.tir +(\d+) +(?:0x)?[0-9a-f]+", table)}
        text = kernel.text.splitlines()
        first = next(i for i, line in enumerate(text, 1) if line.startswith("def "))
        assert len(numbers) > 2
        for number in numbers - {0}:  # 0: instructions that LLVM made of several lines
            assert 1 <= number <= len(text), (kernel.name, number)
            if number <= first:  # the function itself: its prologue
                continue
            comment = re.search(r"#: (.*)$", text[number - 1])
            assert comment, (kernel.name, number, text[number - 1])
            names = {node for name in parse_origin(comment[1]).names
                     for node in kernel.line_origins[name].names}
            assert names and names <= nodes


def drop_origins(module):
    """A faulty pass over relay: one binding of main loses where it comes from."""
    main = module.main
    *before, last = main.body.bindings
    bare = Binding(last.var, last.value, NOWHERE)
    body = Block((*before, bare), main.body.result)
    return Module({**module.functions, "main": replace(main, body=body)})


def forget_node(module):
    """A subtler one: every binding keeps an origin, but one node is named by none any more."""
    bindings = list(module.main.body.bindings)
    bindings[1] = Binding(bindings[1].var, bindings[1].value, bindings[0].origin)
    body = Block(tuple(bindings), module.main.body.result)
    return Module({**module.functions, "main": replace(module.main, body=body)})


@pytest.mark.parametrize("faulty, message", [
    (drop_origins, "R7"),
    (forget_node, "was computed by"),
])
def test_a_relay_pass_that_drops_origins_is_refused(faulty, message):
    module = from_onnx(small_network(), {})
    checks = VerifyEach(verify_relay, check_origins_kept)
    with context(instruments=[checks]), pytest.raises(VerifyError, match=message) as caught:
        Pass("TestDropsOrigins", faulty)(module)
    assert "in pass TestDropsOrigins" in caught.value.__notes__


def test_a_tir_pass_that_drops_origins_is_refused(mobilenet):
    kernel = mobilenet.compiled.kernels[0]

    def drop(func):
        def rule(statement):
            found = isinstance(statement, ir.Store)
            return replace(statement, origin=NOWHERE) if found else statement

        return replace(func, body=walk.rewrite_statement(func.body, rule))

    checks = VerifyEach(lambda func: verify_tir(func, "machine", require_origins=True))
    with context(instruments=[checks]):
        Pass("TestKeeps", lambda func: replace(func, name="other"))(kernel.func)
        with pytest.raises(VerifyError, match="origin"):
            Pass("TestDrops", drop)(kernel.func)


def test_shared_kernels_lead_to_all_their_nodes():
    """Blocks of MobileNetV2 repeat: one kernel, several calls, each call its own nodes."""
    compiled = minitvm.compile(zoo.mobilenet_v2(0, image=32, width=0.35))
    calls = {}
    for statement in walk_statements(compiled.main.body):
        if isinstance(statement, ir.Invoke):
            calls.setdefault(statement.callee, []).append(set(statement.origin.names))
    shared = {name: origins for name, origins in calls.items() if len(origins) > 1}
    assert len(shared) > 5
    kernels = {kernel.name: kernel for kernel in compiled.kernels}
    for name, origins in shared.items():
        union = {n for o in kernels[name].line_origins.values() for n in o.names}
        assert union == set().union(*origins), name
        assert all(not a & b for i, a in enumerate(origins) for b in origins[:i])
