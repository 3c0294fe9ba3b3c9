"""All targets of the fuzzer, by their names. Each is imported when it is asked for: under atheris that takes
a while for all that a target imports."""

from importlib import import_module

from fuzz_kit import Target

PLACES = {
    "peer_frames": "fuzz_peer_frames.TARGET",
    "peer_messages": "fuzz_peer_messages.TARGET",
    "journal_damage": "fuzz_journal.DAMAGE",
    "journal_records": "fuzz_journal.RECORDS",
    "snapshot_file": "fuzz_snapshots.FILE",
    "snapshot_state": "fuzz_snapshots.STATE",
    "backup": "fuzz_backups.BACKUP",
    "small_files": "fuzz_backups.SMALL_FILES",
    "log_entries": "fuzz_log_entries.TARGET",
    "stream_frames": "fuzz_requests.STREAM",
    "http_bodies": "fuzz_requests.BODY",
    "http_targets": "fuzz_requests.TARGET",
}


def target(name: str) -> Target:
    module, _, attribute = PLACES[name].partition(".")
    found: Target = getattr(import_module(module), attribute)
    assert found.name == name
    return found
