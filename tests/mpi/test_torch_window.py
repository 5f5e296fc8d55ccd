# SPDX-License-Identifier: Apache-2.0
"""Windows and tensors share their bytes."""

import numpy as np
import pytest

import hixl_rma as rma
from support.windows import assert_bytes, assert_usable, neighbours, raw

pytestmark = [pytest.mark.mpi, pytest.mark.torch]


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


TYPES = ["float32", "float64", "float16", "bfloat16", "int64", "uint8", "bool", "complex64"]


@pytest.mark.parametrize("name", TYPES)
def test_a_tensor_may_be_the_origin_of_puts_and_gets(make, comm, torch, name):
    right, left = neighbours(comm)
    dtype = getattr(torch, name)

    def tensor(seed):
        return (torch.arange(60).reshape(6, 10) + seed).to(dtype)

    with make(60 * tensor(0).element_size()) as win:
        comm.Barrier()
        back = torch.zeros(6, 10, dtype=dtype)
        with win.lock(right):
            win.put(tensor(comm.rank), right, 0)
            win.get(back, right, 0)
        assert torch.equal(back, tensor(comm.rank))
        comm.Barrier()
        mine = torch.from_numpy(raw(win)).view(dtype).reshape(6, 10)
        assert torch.equal(mine, tensor(left))
        comm.Barrier()


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_views_of_tensors_move_their_elements_in_order(make, comm, torch, name):
    right, left = neighbours(comm)
    dtype = getattr(torch, name)
    views = {
        "transposed": lambda t: t.T,
        "columns": lambda t: t[:, ::3],
        "row": lambda t: t[2],
        "expanded": lambda t: t[:1].expand(4, 10),
        "permuted": lambda t: t.reshape(3, 2, 10).permute(2, 0, 1),
        "scalar": lambda t: t[3, 4],
    }
    with make(1024) as win:
        for view in views.values():
            raw(win)[:] = 0
            comm.Barrier()
            tensor = (torch.arange(60).reshape(6, 10) + comm.rank).to(dtype)
            with win.lock(right):
                win.put(view(tensor), right, 0)
            comm.Barrier()
            wanted = view((torch.arange(60).reshape(6, 10) + left).to(dtype)).contiguous()
            count = wanted.numel() * wanted.element_size()
            mine = torch.from_numpy(raw(win)[:count]).view(dtype).reshape(wanted.shape)
            assert torch.equal(mine, wanted)
            comm.Barrier()


def test_a_get_fills_a_strided_tensor_and_nothing_beside_it(make, comm, torch):
    right, _ = neighbours(comm)
    with make(20, "f4") as win:
        win.local[:] = np.arange(20) + comm.rank
        comm.Barrier()
        tensor = torch.full((5, 8), -1.0)
        with win.lock(right):
            win.get(tensor[:, 1::2], right, 0)
        wanted = torch.full((5, 8), -1.0)
        wanted[:, 1::2] = (torch.arange(20.0) + right).reshape(5, 4)
        assert torch.equal(tensor, wanted)
        comm.Barrier()


def test_the_tensor_of_a_window_is_a_view_of_its_memory(make, comm, torch):
    right, left = neighbours(comm)
    with make((4, 6), "f4") as win:
        tensor = win.tensor()
        assert tensor.shape == (4, 6)
        assert tensor.dtype == torch.float32
        tensor.fill_(comm.rank)
        assert (win.local == comm.rank).all()
        comm.Barrier()
        with win.lock(right):
            win.put(torch.tensor([comm.rank + 0.5]), right, np.s_[2, 3])
        comm.Barrier()
        assert tensor[2, 3].item() == left + 0.5
        comm.Barrier()


def test_the_tensor_of_a_window_outlives_the_window(make, comm, torch):
    with make(100, "i4") as win:
        tensor = win.tensor()
        win.local[:] = np.arange(100)
    del win
    assert torch.equal(tensor, torch.arange(100, dtype=torch.int32))


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int64"])
def test_a_tensor_may_be_the_memory_of_a_window(comm, torch, name):
    right, left = neighbours(comm)
    tensor = torch.zeros(8, dtype=getattr(torch, name))
    with rma.Window.create(tensor, comm=comm) as win:
        comm.Barrier()
        with win.lock(right):
            win.put(torch.full((3,), comm.rank + 1, dtype=tensor.dtype), right, 2)
        comm.Barrier()
        assert tensor.tolist() == [0, 0, *[left + 1] * 3, 0, 0, 0]
        assert_usable(win, comm)


def test_a_tensor_that_requires_grad_is_read_and_never_written(make, comm, torch):
    right, left = neighbours(comm)
    with make(4, "f4") as win:
        win.local[:] = 0
        comm.Barrier()
        tensor = torch.full((4,), float(comm.rank + 1), requires_grad=True)
        with win.lock(right):
            win.put(tensor, right, 0)
            with pytest.raises(rma.ArgumentError):
                win.get(tensor, right, 0)
        comm.Barrier()
        assert (win.local == left + 1).all()
        assert tensor.requires_grad
        assert (tensor == comm.rank + 1).all()
        comm.Barrier()
    with pytest.raises(rma.ArgumentError):
        rma.Window.create(torch.zeros(4, requires_grad=True), comm=comm)


def test_tensors_may_be_accumulated(make, comm, torch):
    right, left = neighbours(comm)
    with make(10, "f4") as win:
        win.local[:] = 1
        comm.Barrier()
        old = torch.zeros(10)
        with win.lock(right):
            win.get_accumulate(torch.arange(10.0) + comm.rank, old, right, 0, op="sum")
        assert torch.equal(old, torch.ones(10))
        comm.Barrier()
        assert_bytes(win.local, (np.arange(10) + left + 1).astype("f4"))
        comm.Barrier()


def test_a_bfloat16_tensor_is_not_accumulated(make, comm, torch):
    right, _ = neighbours(comm)
    with make(64) as win:
        raw(win)[:] = 7
        comm.Barrier()
        with win.lock(right), pytest.raises(rma.ArgumentTypeError):
            win.accumulate(torch.ones(4, dtype=torch.bfloat16), right, 0)
        comm.Barrier()
        assert (raw(win) == 7).all()


def test_a_tensor_may_be_deleted_while_its_request_is_outstanding(make, comm, torch):
    right, left = neighbours(comm)
    size = 1 << 20
    with make(size, "f4") as win:
        comm.Barrier()
        with win.lock(right):
            request = win.rput(torch.full((size,), comm.rank + 1.0), right, 0)
            torch.zeros(size).fill_(-1)
            request.wait(timeout=60)
        comm.Barrier()
        assert (win.local == left + 1).all()


def test_blocks_of_a_cache_are_put_with_one_notification(make, comm, torch):
    right, left = neighbours(comm)
    layers, blocks, block = 2, 6, 4 * 8
    with make((layers, blocks, 4, 8), "f4") as win:
        comm.Barrier()
        cache = torch.arange(layers * blocks * block, dtype=torch.float32) + 1000 * comm.rank
        cache = cache.reshape(layers, blocks, 4, 8)
        order = [4, 0, 5, 2]
        with win.lock(right):
            for layer in range(layers):
                pieces = [
                    (cache[layer, source], (layer * blocks + place) * block)
                    for place, source in enumerate(order)
                ]
                win.put_notify_v(pieces, right, notification=layer)
        mine = win.tensor()
        theirs = torch.arange(layers * blocks * block, dtype=torch.float32) + 1000 * left
        theirs = theirs.reshape(layers, blocks, 4, 8)
        for layer in range(layers):
            win.wait_notify(layer, source=left, timeout=20)
            for place, source in enumerate(order):
                assert torch.equal(mine[layer, place], theirs[layer, source])
        comm.Barrier()
