"""The base of every model an operator's words or the cluster's answers become."""

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Frozen, strict about names, silent about the values that it refuses.

    Unknown keys are errors, not guesses. A refused value is not repeated in the error text, since
    it may be a secret that was written under the wrong key.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
