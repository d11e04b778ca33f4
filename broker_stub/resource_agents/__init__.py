"""What a cluster's resource manager runs: a Pacemaker agent, and two scripts for rgmanager.

``broker-stub``          OCF agent, a promotable clone.
``broker-stub-backup``   LSB script: the broker, on every node.
``broker-stub-primary``  LSB script: which of them serves.
``probe``                what the agent asks a member at each monitor.

docs/resource-managers.md tells how they are installed and configured.
"""
