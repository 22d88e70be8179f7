"""omfs-run, the launcher inside batch jobs: starts a program so that it can be stopped, and brings it back.

Runs as the job's owner on nodes that have nothing of ours but this package (as one file), with Python 3.6 or later;
so nothing here imports anything else of omfs_daemon.
"""
