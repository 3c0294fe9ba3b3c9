"""What clients do: one module for each kind of work, and what they share.

calls.py        a call and its record in the history
sessions.py     sessions, their handles, and what is believed
program.py      one client's means and memory
acquiring.py    from asking to a handle, or to nothing left behind
committing.py   one guarded write
real_client.py  the client's own calls and acquires, over the simulated client
front.py        the whole client, with its handles and renewals

holding.py      hold, wait, keep: leases for their own sake
guarding.py     commits in all modes, and the records
registers.py    read, think, write outside the service
shared.py       explicit sessions with several leases
crowding.py     readers beside one another, writers among them, pools
resizing.py     pools whose number of slots an administrator changes
gathering.py    sets of keys
passing.py      handing over, parking and taking up, progress
programming.py  programs that use the whole client
batching.py     many operations in one request
looking.py      reads, also of replicas that lag
mishaps.py      breaks, wrong ids, calls made again, old leases
"""
