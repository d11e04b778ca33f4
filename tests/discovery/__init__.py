"""Tests of the discovery layer; ``virtual`` drives it without a clock and without sockets."""
