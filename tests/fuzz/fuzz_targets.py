"""All targets of the fuzzer."""

import fuzz_backups
import fuzz_journal
import fuzz_log_entries
import fuzz_peer_frames
import fuzz_peer_messages
import fuzz_requests
import fuzz_snapshots
from fuzz_kit import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        fuzz_peer_frames.TARGET,
        fuzz_peer_messages.TARGET,
        fuzz_journal.DAMAGE,
        fuzz_journal.RECORDS,
        fuzz_snapshots.FILE,
        fuzz_snapshots.STATE,
        fuzz_backups.BACKUP,
        fuzz_backups.SMALL_FILES,
        fuzz_log_entries.TARGET,
        fuzz_requests.STREAM,
        fuzz_requests.BODY,
        fuzz_requests.TARGET,
    )
}
