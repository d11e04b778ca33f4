"""Scripts that a resource manager runs: a Pacemaker agent, and two scripts for rgmanager.

``broker-stub``          OCF agent, a promotable clone.
``broker-stub-backup``   LSB script: runs the broker on every node.
``broker-stub-primary``  LSB script: makes one of the members primary.
``probe``                reads a member's role and promotion score at each monitor.

docs/resource-managers.md describes how to install and configure them.
"""
