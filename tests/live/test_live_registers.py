"""The registers outside the service, over the network."""

from tenure_chaos.live.work.registers import Registers, RemoteRegister


async def test_a_guarded_register_refuses_what_a_later_holder_has_overtaken() -> None:
    registers = Registers(lambda: 7.0)
    async with registers.serving() as address:
        register = RemoteRegister("r", address)
        assert await register.arm(5)
        seen = await register.read()
        assert await register.arm(6)
        assert not await register.arm(5)
        late = await register.write("a", 5, seen)
        assert (late.accepted, late.floor) == (False, 6)
        assert (await register.write("b", 6, seen)).accepted
        after = await register.read()
    assert (after.guarded, after.unguarded) == (2, 2)
    written = [(write.guarded, write.accepted, write.found, write.value) for write in registers.writes]
    assert written == [(True, False, 0, 1), (False, True, 0, 1), (True, True, 0, 2), (False, True, 1, 2)]
    assert {write.arrived_at for write in registers.writes} == {7.0}


async def test_registers_have_nothing_to_do_with_each_other() -> None:
    async with Registers(lambda: 0.0).serving() as address:
        one, other = RemoteRegister("one", address), RemoteRegister("other", address)
        assert await one.arm(9)
        assert await other.arm(1)
        assert (await other.write("a", 1, await other.read())).accepted
        assert (await one.read()).guarded == 0
