"""The wheels of ``make wheels``, installed where there is no compiler: ``make test-wheels``."""
