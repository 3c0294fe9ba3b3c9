"""Mutants: the program with one promise broken on purpose, to show that the harness notices.

``edits.py`` makes them, ``catalogue.py`` lists them all, ``hunt.py`` runs seed after seed until a rule is
broken, ``report.py`` says it in a table. The mutants themselves stand by subject in ``leases.py``,
``queues.py``, ``guards.py``, ``memories.py``, ``time.py``, ``disks.py``, ``consensus.py``, ``service.py``,
``clients.py`` and ``watches.py``.

``mitigations.py`` leaves out what closes the defects of PySyncObj, one at a time; ``survey.py`` counts what
that costs.
"""
