"""AdamW that runs without Python."""

from __future__ import annotations

from typing import Any

import torch

from penstock.arguments import named
from penstock.torch.arguments import in_code_of


class AdamW(torch.optim.AdamW):
    """torch.optim.AdamW whose updates run on the rank's thread without Python.

    The same numbers as ``torch.optim.AdamW(fused=True)``, and the same ``state_dict``.
    Learning-rate schedulers set ``param_groups`` as usual. With hooks of its ``step``, a ``step``
    in place of torch's, ``amsgrad``, ``maximize``, or ``decoupled_weight_decay=False``, updates run Python code, which ``zero`` refuses.
    """

    @named
    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        with in_code_of("AdamW"):
            super().__init__(params, lr, betas, eps, weight_decay, fused=True)
