"""The lost update: many programs debit accounts under leases, and some of them are paused for too long.

    python examples/lost_update.py [--runs 1000] [--jobs 4] [--workers 8] [--endpoints URLS] [--postgres DSN]

Each run is one account, from which every worker debits $10 once: it acquires the account's lease, reads the
balance, thinks, and writes the new balance. Meanwhile workers are stopped by SIGSTOP for longer than their
leases last, and then go on. Whoever is stopped between reading and writing wakes up and writes a balance that
is out of date, if nobody stops it: what others debited meanwhile is lost.

The same program runs twice: without a guard, and with one, which is two lines more. It prints how many of the
accounts are wrong. The exit code is 0 if none is with the guard, and some are without it. The accounts can be
shared out among several crowds of workers (--jobs), which makes it quicker and changes nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import tenure
from tenure.fencing.sql import SqlGuard

ENDPOINTS = "http://127.0.0.1:7601,http://127.0.0.1:7602,http://127.0.0.1:7603"
BALANCE, DEBIT = 1_000, 10
TTL_S = 3.0
THINKING_S = 0.1
WAIT_S = 600.0
CROWD = 4
"""Accounts that all work on at a time. The fewer, the sooner somebody takes a paused worker's place."""
PAUSES_PER_THOUGHT = 0.15
"""Rather more than one in each run of eight workers."""
THINKERS = 0.75
"""Which part of the pauses is for workers that think. The others hit whoever it is, whatever it does: also in
the middle of a call, a renewal or a transaction."""

GUARD = SqlGuard()


class Bank:
    """The accounts, in SQLite or PostgreSQL."""

    def __init__(self, where: str) -> None:
        self.connection: Any
        if where.startswith("sqlite:"):
            self.connection = sqlite3.connect(where.removeprefix("sqlite:"), timeout=600)
            self.connection.execute("PRAGMA synchronous = OFF")
            self.mark = "?"
        else:
            import psycopg

            self.connection = psycopg.connect(where)
            self.mark = "%s"

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        try:
            yield self.connection
        except BaseException:
            self.connection.rollback()
            raise
        self.connection.commit()

    def open(self, accounts: int) -> None:
        with self.transaction() as connection:
            GUARD.create(connection)
            connection.execute("DROP TABLE IF EXISTS accounts")
            connection.execute(f"DELETE FROM {GUARD.table}")
            connection.execute("CREATE TABLE accounts (number BIGINT PRIMARY KEY, balance BIGINT)")
            for number in range(accounts):
                connection.execute(f"INSERT INTO accounts VALUES ({number}, {BALANCE})")

    def balance(self, number: int) -> int:
        with self.transaction() as connection:
            query = f"SELECT balance FROM accounts WHERE number = {self.mark}"
            return int(connection.execute(query, (number,)).fetchone()[0])

    def balances(self) -> list[int]:
        with self.transaction() as connection:
            return [int(row[0]) for row in connection.execute("SELECT balance FROM accounts").fetchall()]


def debit(client: tenure.SyncClient, bank: Bank, number: int, *, guarded: bool, thinking: Any) -> bool:
    """Debit the account once; false if nothing was written because the lease was lost."""
    done = False
    lease = client.lease(f"account/{number}", ttl=TTL_S, wait=WAIT_S)
    with contextlib.suppress(tenure.LeaseLost, tenure.CommitRefused), lease as held:
        if guarded:
            with bank.transaction() as connection:
                GUARD.arm(connection, held.key, held.token)
        balance = bank.balance(number)
        held.check()
        # However late a program looks at its lease, it can be paused after that.
        thinking.value += 1
        time.sleep(THINKING_S)
        thinking.value += 1
        with bank.transaction() as connection:
            if guarded:
                GUARD.write(connection, held.key, held.token)
            statement = f"UPDATE accounts SET balance = {bank.mark} WHERE number = {bank.mark}"
            connection.execute(statement, (balance - DEBIT, number))
        done = True
    return done


def work(endpoints: str, where: str, accounts: range, seed: int, guarded: bool, thinking: Any) -> None:
    """One worker: a debit from each account, in an order of its own, but not far from the others."""
    rng = random.Random(seed)
    order = list(accounts)
    for start in range(0, len(order), CROWD):
        crowd = order[start : start + CROWD]
        order[start : start + CROWD] = rng.sample(crowd, len(crowd))
    bank = Bank(where)
    with tenure.connect_sync(endpoints, timeout=60) as client:
        for number in order:
            while not debit(client, bank, number, guarded=guarded, thinking=thinking):
                pass


def disturb(
    workers: list[BaseProcess], thinking: list[Any], rng: random.Random, *, jobs: int, most: float
) -> int:
    """Stop workers at random, and continue them, until all have ended; how often.

    What each of them shares with us is odd while it thinks, and grows by two with each thought.
    """
    stopped: dict[int, float] = {}
    spared: dict[int, float] = {}
    stops = 0
    next_at = 0.0
    while any(worker.is_alive() for worker in workers):
        now = time.monotonic()
        for pid in [pid for pid, until in stopped.items() if now >= until]:
            del stopped[pid]
            # Or it would be stopped again in the same thought, for ever.
            spared[pid] = now + 10 * THINKING_S
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        earned = 4 + PAUSES_PER_THOUGHT * sum(thinks.value for thinks in thinking) / 2
        if now >= next_at and stops < min(most, earned) and len(stopped) < len(workers) // 2:
            thinkers = rng.random() < THINKERS
            victims = [
                worker.pid
                for worker, thinks in zip(workers, thinking, strict=True)
                if worker.pid and worker.is_alive() and (thinks.value % 2 if thinkers else thinks.value)
            ]
            victims = [pid for pid in victims if pid not in stopped and now >= spared.get(pid, 0)]
            if victims:
                victim = rng.choice(victims)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGSTOP)
                    stopped[victim] = now + TTL_S * rng.uniform(1.1, 1.6)
                    stops += 1
                next_at = now + rng.uniform(0.1, 0.9) / jobs
        time.sleep(0.005)
    return stops


def shares(accounts: int, jobs: int) -> list[range]:
    """The accounts, shared out among the jobs."""
    cuts = [accounts * job // jobs for job in range(jobs + 1)]
    return [range(start, end) for start, end in itertools.pairwise(cuts) if end > start]


def play(
    endpoints: str, where: str, *, runs: int, jobs: int, workers: int, seed: int, guarded: bool, pauses: float
) -> int:
    """Run the program on every account; how many are wrong in the end."""
    began = time.monotonic()
    bank = Bank(where)
    bank.open(runs)
    # Not by fork: each worker is a program of its own.
    context = multiprocessing.get_context("spawn")
    crowds = shares(runs, jobs)
    thinking = [context.Value("i", 0, lock=False) for _ in range(len(crowds) * workers)]
    processes = [
        context.Process(
            target=work, args=(endpoints, where, crowds[number // workers], seed + number, guarded, flag)
        )
        for number, flag in enumerate(thinking)
    ]
    for process in processes:
        process.start()
    stops = disturb(list(processes), thinking, random.Random(seed), jobs=len(crowds), most=pauses)
    for process in processes:
        process.join()
        if process.exitcode != 0:
            sys.exit(f"a worker ended with {process.exitcode}")
    expected = BALANCE - workers * DEBIT
    wrong = [balance for balance in bank.balances() if balance != expected]
    lost = sum(balance - expected for balance in wrong)
    print(  # noqa: T201
        f"{'with' if guarded else 'without'} the guard: {len(wrong)} of {runs} balances are wrong"
        f"{f', ${lost} of debits lost' if lost else ''}"
        f"   ({runs * workers} debits, {stops} pauses, {time.monotonic() - began:.0f} s)",
        flush=True,
    )
    return len(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description="Lose updates, and then don't.")
    parser.add_argument("--endpoints", default=ENDPOINTS)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--jobs", type=int, default=1, help="crowds of workers at a time [default: 1]")
    parser.add_argument("--workers", type=int, default=8, help="that contend in each run [default: 8]")
    parser.add_argument(
        "--pauses", type=float, default=float("inf"), help="at most [default: no end of them]"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--postgres", metavar="DSN", help="keep the balances there [default: SQLite]")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        where = asked.postgres or f"sqlite:{Path(directory) / 'bank'}"
        wrong = [
            play(
                asked.endpoints,
                where,
                runs=asked.runs,
                jobs=asked.jobs,
                workers=asked.workers,
                seed=asked.seed,
                guarded=guarded,
                pauses=asked.pauses,
            )
            for guarded in (False, True)
        ]
    return 0 if wrong[0] > 0 and wrong[1] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
