"""Who may be primary: roles, generations, claims and the arbiter."""
