"""Programs that are stopped in the middle of their calls, or killed, and tell what they saw."""

CALLING = """
import asyncio, json, sqlite3, sys, threading
import tenure
from tenure._clock import now_s
from tenure.fencing.sql import SqlGuard

PAUSED_S = 10.0

async def main(endpoints, key, bank):
    seen, calls = {}, dict.fromkeys(CALLS, 0)
    async with tenure.connect(endpoints) as client:
        sync = tenure.connect_sync(endpoints)
        held = [await client.lease(f"{key}/{n}", ttl=3).acquire() for n in range(3)]
        held.append(sync.lease(f"{key}/3", ttl=3).acquire())

        def returned(name, since):
            # Nothing of the library has been called since the call returned.
            states = [h.state.value for h in held]
            now = now_s()
            calls[name] += 1
            if now - since > PAUSED_S:
                seen[name] = states
            return now

        async def again(name, call):
            since = now_s()
            while name not in seen:
                try:
                    await call()
                except tenure.TenureError:
                    pass
                since = returned(name, since)
                await asyncio.sleep(0)

        def again_in_a_thread(name, call):
            since = now_s()
            while name not in seen:
                try:
                    call()
                except tenure.TenureError:
                    pass
                since = returned(name, since)

        threads = [
            threading.Thread(target=again_in_a_thread, args=("sync get", lambda: sync.get(f"{key}/3"))),
            threading.Thread(target=again_in_a_thread, args=("sync renew", lambda: held[3].renew())),
        ]
        for thread in threads:
            thread.start()
        tasks = [
            again("get", lambda: client.get(f"{key}/0")),
            again("renew", lambda: held[0].renew()),
            again("commit", lambda: held[1].commit("v", mode="current")),
            again("validate", lambda: client.validate(f"{key}/2", held[2].token)),
        ]
        running = asyncio.gather(*tasks)
        while min(calls.values()) < 3:
            await asyncio.sleep(0.01)
        print(json.dumps({"states": [h.state.value for h in held], "token": held[0].token}), flush=True)
        await running
        for thread in threads:
            await asyncio.to_thread(thread.join)
        said = {"seen": seen, "reasons": [h.lost_reason for h in held], "refused": {}}

        async def refused(name, write):
            try:
                await write()
            except tenure.TenureError as error:
                said["refused"][name] = [type(error).__name__, error.code]

        async def in_sqlite():
            with sqlite3.connect(bank) as connection:
                SqlGuard().write(connection, held[0].key, held[0].token)
                connection.execute("UPDATE balance SET amount = amount - 1")

        def plain(h):
            return client.commit(h.key, lease_id=h.lease_id, token=h.token, value="late", mode="current")

        await refused("by the handle", lambda: held[0].commit("late"))
        await refused("past the handle", lambda: plain(held[0]))
        await refused("of a key that nobody took", lambda: plain(held[1]))
        await refused("in SQLite", in_sqlite)
        print(json.dumps(said), flush=True)
        sync.close()

CALLS = ["get", "renew", "commit", "validate", "sync get", "sync renew"]
asyncio.run(main(*sys.argv[1:]))
"""
"""Holds four leases, three by asyncio and one by threads, and makes calls without a pause. It writes down
what all its handles say as each call returns that the stop has struck, and then tries to write."""

HOLDING = """
import sys, time
import tenure

client = tenure.connect_sync(sys.argv[1])
held = client.lease(sys.argv[2], ttl=3).acquire()
print(held.token, flush=True)
time.sleep(600)
"""
"""Holds one lease until it is killed."""
