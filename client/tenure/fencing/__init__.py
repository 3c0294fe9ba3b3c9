"""Guards for state that lives outside the service: the same rules, where the state is written.

A lease bounds who acts; only a guard at the place of the write stops a holder that acts too late. Each guard
keeps a fence for each key beside the state (or in it), and every write goes through it:

    arm       raise the floor to this token: the first thing to do after acquiring, so that whoever held
              before can't write any more, even before the first write of the new holder
    a write   is accepted by the mode, or refused with CommitRefused, and then nothing was written

    mode        accepted if                                           for
    current     token >= floor                                        several writes under one lease
    once        token >= floor and token > last used                  one write per grant
    sequence    token >= floor and (token, seq) > last (token, seq)   many writes, none reordered

    tenure.fencing.sql           SQLite, PostgreSQL: inside the caller's own transaction
    tenure.fencing.redis         Redis: check and write in one script
    tenure.fencing.objectstore   S3: conditional writes, the fence in the object's metadata
    tenure.fencing.files         a file and its fence, on one machine

None of these modules imports a database driver: you hand in your own connection or client.
"""

from tenure.errors import CommitRefused
from tenure.fencing._rules import Fence, Mode

__all__ = ["CommitRefused", "Fence", "Mode"]
