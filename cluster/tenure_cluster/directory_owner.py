"""Whose a data directory is: the usual fault of a node that was once started by hand, as root."""

import os
import pwd
from pathlib import Path


def owner_fault(data_dir: Path) -> str:
    """In one line with its remedy, why this process must not or can't work in the directory for whose it is;
    empty if it may."""
    process = os.geteuid()
    for path in _paths(data_dir):
        try:
            owner = path.stat().st_uid
        except FileNotFoundError:
            continue
        except OSError as error:
            return _told(data_dir, f"{path.name}: {error.strerror}", None)
        usable = os.access(path, os.R_OK | os.W_OK | (os.X_OK if path.is_dir() else 0))
        # A directory may be a volume's, which is shared by a group; what is in it is written by its node.
        foreign = owner != process and path != data_dir
        if not usable or (foreign and process == 0):
            return _told(data_dir, f"{path.name} belongs to {_name(owner)}", owner)
    return ""


def _paths(data_dir: Path) -> list[Path]:
    try:
        inside = sorted(path for path in data_dir.iterdir() if path.name != "lost+found")
    except OSError:
        inside = []
    return [data_dir, *inside]


def _told(data_dir: Path, what: str, owner: int | None) -> str:
    process = os.geteuid()
    if process == 0 and owner is not None:
        remedy = f"run it as {_name(owner)}, or: chown -R root {data_dir}"
    else:
        remedy = f"chown -R {_name(process)}: {data_dir}; or set another data_dir"
    return (
        f"data_dir = {str(data_dir)!r} can't be used by {_name(process)}, as whom this process runs: "
        f"{what}: {remedy}"
    )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
