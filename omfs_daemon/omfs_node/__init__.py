"""omfs-node, run by root on compute nodes: stops a job's processes and moves their memory out and back in.

Runs as one file on nodes that have only Python 3.6 or later: it imports nothing of omfs_daemon but this package and
``protocol``.
"""
