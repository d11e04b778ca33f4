"""How long to wait and when to give up: the policy, the delays, and the strategies that draw them.  Pure."""
