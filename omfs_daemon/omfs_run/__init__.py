"""omfs-run, in batch scripts: starts a program so that it can be checkpointed, and restarts it.

Runs as the job's owner, as one file on nodes that have only Python 3.6 or later: it imports nothing of omfs_daemon but
this package and ``protocol``.
"""
