"""Programs that use the client in a process of their own, so that it can be stopped or forked."""

HOLDING = """
import asyncio, json, sys
import tenure

async def main(endpoints, key):
    async with tenure.connect(endpoints) as client:
        held = [await client.lease(f"{key}/{n}", ttl=3).acquire() for n in range(3)]
        said = {"states": [h.state.value for h in held], "tokens": [h.token for h in held]}
        print(json.dumps(said), flush=True)
        sys.stdin.readline()
        said = {"states": [h.state.value for h in held]}
        try:
            await held[0].commit("late")
        except tenure.TenureError as error:
            said["commit"] = type(error).__name__
        try:
            await client.commit(held[0].key, lease_id=held[0].lease_id, token=held[0].token, value="late")
        except tenure.TenureError as error:
            said["plain commit"] = error.code
        print(json.dumps(said), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""
"""Holds three leases, blocks its loop and its main thread, and tells what it reads afterwards."""

FORKING = """
import asyncio, gc, json, os, sys
import tenure

async def main(endpoints, key):
    async with tenure.connect(endpoints) as client:
        held = [await client.lease(f"{key}/{n}", ttl=3).acquire() for n in range(5)]
        out, into = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(into, json.dumps([h.state.value for h in held]).encode())
            del held, client
            gc.collect()
            os._exit(0)
        os.close(into)
        said = {"child": json.loads(b"".join(iter(lambda: os.read(out, 4096), b"")))}
        os.waitpid(child, 0)
        await asyncio.sleep(5)
        said["parent"] = [h.state.value for h in held]
        said["valid"] = [(await client.validate(h.key, h.token)).valid for h in held]
        for h in held:
            await h.release()
        print(json.dumps(said))

asyncio.run(main(*sys.argv[1:]))
"""
"""Forks with five leases; the child reads its handles and drops all that it inherited. It ends by _exit, as a
child of a running event loop has to: unwinding would deregister the parent's loop from the selector that both
have."""
