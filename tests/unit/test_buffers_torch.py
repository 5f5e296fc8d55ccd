# SPDX-License-Identifier: Apache-2.0
"""Buffers of torch tensors on the CPU."""

import subprocess
import sys

import numpy as np
import pytest

from hixl_rma.buffers import as_buffer
from hixl_rma.errors import ArgumentError, UnsupportedError


def test_torch_is_never_imported():
    code = (
        "import sys, hixl_rma.buffers as b\n"
        "b.as_buffer(bytearray(3), writable=True)\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.mark.torch
@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        "float64",
        "float16",
        "int8",
        "uint8",
        "int64",
        "bool",
        "complex64",
        "bfloat16",
        "float8_e4m3fn",
    ],
)
def test_a_tensor_of_any_type_shares_its_memory(torch, dtype, writable):
    tensor = torch.zeros((4, 6), dtype=getattr(torch, dtype))
    for view in (tensor, tensor.T, tensor[::2, 1:4], tensor[0], tensor[1, 1]):
        found = as_buffer(view, writable=writable)
        assert found.ctypes.data == view.data_ptr()
        assert found.itemsize == view.element_size()
        assert found.shape == tuple(view.shape)
        assert found.strides == tuple(step * view.element_size() for step in view.stride())
        assert memoryview(found).nbytes == view.numel() * view.element_size()


@pytest.mark.torch
def test_an_empty_tensor_has_an_empty_buffer(torch):
    assert as_buffer(torch.zeros((0, 3), dtype=torch.bfloat16), writable=True).nbytes == 0


@pytest.mark.torch
def test_writing_the_buffer_writes_the_tensor(torch):
    tensor = torch.zeros(4, dtype=torch.bfloat16)
    as_buffer(tensor, writable=True).view("u2")[:] = 0x3F80
    assert torch.equal(tensor, torch.ones(4, dtype=torch.bfloat16))


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_tensor_that_requires_grad_may_be_read_and_not_written(torch, dtype):
    leaf = torch.zeros(4, dtype=getattr(torch, dtype), requires_grad=True)
    for tensor in (leaf, leaf * 2, torch.nn.Parameter(leaf.detach())):
        assert as_buffer(tensor, writable=False).ctypes.data == tensor.data_ptr()
        with pytest.raises(ArgumentError, match=r"detach\(\)"):
            as_buffer(tensor, writable=True)


@pytest.mark.torch
def test_a_sparse_tensor_is_refused(torch):
    with pytest.raises(UnsupportedError, match="sparse"):
        as_buffer(torch.eye(3).to_sparse(), writable=False)


@pytest.mark.torch
def test_a_tensor_without_memory_is_refused(torch):
    with pytest.raises(UnsupportedError, match="no memory"):
        as_buffer(torch.zeros(3, device="meta"), writable=False)


@pytest.mark.torch
def test_a_lazily_conjugated_tensor_is_refused_because_its_memory_holds_other_values(torch):
    tensor = torch.full((2,), 1 + 2j)
    with pytest.raises(ArgumentError, match="resolve_conj"):
        as_buffer(tensor.conj(), writable=False)
    assert np.array_equal(as_buffer(tensor.conj().resolve_conj(), writable=False), [1 - 2j] * 2)
