"""omfs-node, root's hand on a compute node: stops a job's processes and moves their memory out, and back in.

Runs on nodes that have nothing of ours but this package (as one file), with Python 3.6 or later; so nothing here
imports anything else of omfs_daemon.
"""
