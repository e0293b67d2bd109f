"""Store and controller under any order of what can happen to them; hypothesis shrinks an order that fails."""

from controller_machine import ControllerMachine
from hypothesis import settings
from store_machine import StoreMachine

from impls.store.packs import packed_entries
from impls.store.tables import STATE, bin_range, iter_range

TestController, TestStore = ControllerMachine.TestCase, StoreMachine.TestCase
TestController.settings = TestStore.settings = settings(stateful_step_count=20)


def test_moves_of_the_store_pack_at_all():
    machine = StoreMachine()
    machine.put(places=[(1, bytes([n, 0])) for n in range(200)], value=b"vv", commits=True)
    machine.move(bin_=1, commits=True, as_image=False)
    machine.scan(bin_=1, low=b"\x80\x00", high=b"\x80\x01")
    with machine.stores[1].reading() as view:
        packed, apart = packed_entries(view, 1), len(list(iter_range(view, *bin_range(STATE, 1))))
    assert packed + apart == 200
    assert packed > 150
    assert apart
    machine.teardown()
