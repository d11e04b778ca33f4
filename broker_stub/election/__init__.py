"""The election of the primary: roles, generations, claims and the arbiter."""
