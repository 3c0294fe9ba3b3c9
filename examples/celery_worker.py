"""A Celery task that takes effect once, however often it is delivered.

    pip install celery
    python examples/celery_worker.py [ENDPOINTS]

Celery delivers a task at least once: again after its worker has died (``acks_late``), after a visibility
timeout, or because it was sent twice. So the task holds a lease on what it works for, looks whether that is
done, and commits the result under its token, in the mode ``once``. The program starts a worker, sends one
invoice twice, and kills the process that works on it. The second delivery meanwhile waits in the queue of the
key, the first is delivered anew, and one of them charges; the other one finds the record. A process that is
paused past its lease changes nothing either: its token is stale. For an effect outside of the cluster, hand
``held.token`` on to a guard there (``tenure.fencing``), or the invoice as the key of idempotency.

The worker alone, as in production, and a task for it, from this directory:

    QUEUE_DIR=/tmp/invoices TENURE_ENDPOINTS=… celery -A celery_worker worker
    QUEUE_DIR=/tmp/invoices python -c 'import celery_worker; celery_worker.settle.delay("42")'

The queue is a directory here, so that no other server is needed. Such a queue loses what the worker's main
process has taken if that one is killed; a broker for production delivers it again, and the task is the same.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from celery import Celery
from celery.signals import worker_process_init, worker_process_shutdown

import tenure
from tenure import DEFAULT_ENDPOINTS

BUSY = (tenure.LeaseUnavailable, tenure.LeaseLost, tenure.CommitRefused)
UNANSWERED = (tenure.ClusterUnavailable, tenure.OutcomeUnknown)

app = Celery("invoices")
app.conf.update(
    broker_url="filesystem://",
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
)


def use_queue(directory: Path) -> None:
    messages, exchanges, results = (directory / name for name in ("messages", "exchanges", "results"))
    for folder in (messages, exchanges, results):
        folder.mkdir(parents=True, exist_ok=True)
    app.conf.update(
        broker_transport_options={
            "data_folder_in": str(messages),
            "data_folder_out": str(messages),
            "control_folder": str(exchanges),
        },
        result_backend=f"file://{results}",
    )


if "QUEUE_DIR" in os.environ:
    use_queue(Path(os.environ["QUEUE_DIR"]))

cluster: tenure.SyncClient


@worker_process_init.connect
def connect(**_: object) -> None:
    """The client has a thread and connections, and neither comes through a fork: each process of the pool
    makes its own, after it. One that the main process had made would refuse every call here."""
    global cluster
    cluster = tenure.connect_sync(os.environ.get("TENURE_ENDPOINTS", DEFAULT_ENDPOINTS))


@worker_process_shutdown.connect
def disconnect(**_: object) -> None:
    cluster.close()


@app.task(name="settle", autoretry_for=(*BUSY, *UNANSWERED), max_retries=None, default_retry_delay=5)
def settle(invoice: str) -> str:
    key = f"invoice/{invoice}"
    with cluster.lease(key, ttl=5, wait=60, metadata={"pid": str(os.getpid())}) as held:
        # Whoever comes later finds what was done, also if the one that did it died before Celery knew.
        if (record := cluster.record(key)) is not None:
            return f"was {record.value} with token {record.token}"
        held.progress("asks the bank")
        ask_the_bank(held)
        held.commit("charged", mode="once")
        return f"charged with token {held.token}"


def ask_the_bank(held: tenure.SyncHeld) -> None:
    """It answers after long: here as soon as there is a file."""
    while not (Path(os.environ["QUEUE_DIR"]) / "the bank is open").exists():
        held.check()  # lost: there is no use in going on
        time.sleep(0.05)


def in_the_middle(client: tenure.SyncClient, key: str, worker: subprocess.Popen[bytes]) -> tenure.LeaseInfo:
    until = time.monotonic() + 90
    while time.monotonic() < until and worker.poll() is None:
        if (lease := client.get(key)) is not None and lease.progress is not None:
            return lease
        time.sleep(0.1)
    raise SystemExit("the worker doesn't begin")


def main(endpoints: str, directory: Path) -> None:
    use_queue(directory)
    invoice = secrets.token_hex(4)
    deliveries = [settle.delay(invoice), settle.delay(invoice)]

    command = [sys.executable, "-m", "celery", "-A", "celery_worker", "worker", "--concurrency", "2"]
    environment = os.environ | {"QUEUE_DIR": str(directory), "TENURE_ENDPOINTS": endpoints}
    log = directory / "worker.log"
    with log.open("wb") as out:
        worker = subprocess.Popen(
            command, cwd=Path(__file__).parent, env=environment, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        with tenure.connect_sync(endpoints) as client:
            lease = in_the_middle(client, f"invoice/{invoice}", worker)
        os.kill(int(lease.metadata["pid"]), signal.SIGKILL)
        say(f"killed process {lease.metadata['pid']}, which holds invoice {invoice} with token {lease.token}")
        (directory / "the bank is open").touch()
        for delivery in deliveries:
            say(f"a delivery says: {delivery.get(timeout=60)}")
    except BaseException:
        sys.stderr.write(log.read_text())
        raise
    finally:
        worker.terminate()  # a warm shutdown: it ends what it has begun
        try:
            worker.wait(20)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as queue:
        main(sys.argv[1] if len(sys.argv) > 1 else DEFAULT_ENDPOINTS, Path(queue))
