"""A job that cron starts on every machine, and that is to run once.

    0 3 * * *   python examples/cron_singleton.py

Whoever comes first does the work; the others see that it is being done, or has been done today, and go home.
Without a program of one's own, ``tenure run nightly-report -- ./report.sh`` does the first half of that.
"""

from __future__ import annotations

import datetime
import sys

import tenure
from tenure import DEFAULT_ENDPOINTS


def report(day: str) -> str:
    return f"the report of {day}"


def main(endpoints: str) -> str:
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    key = f"cron/report/{day}"
    with tenure.connect_sync(endpoints) as client:
        try:
            with client.lease(key, ttl=30) as held:
                if client.record(key) is not None:
                    return "done already"
                # Machines whose clocks differ come late, and find the record.
                held.commit(report(day))
                return f"done with token {held.token}"
        except tenure.LeaseUnavailable as busy:
            return f"being done by {busy.holder.owner if busy.holder else 'somebody else'}"


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1] if len(sys.argv) > 1 else DEFAULT_ENDPOINTS) + "\n")
