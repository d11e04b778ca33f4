"""The resource agent under a real Pacemaker and Corosync: two or three nodes in namespaces."""
