"""A real installer on an emulated machine: ``make acceptance``. Not a part of ``make test``."""
