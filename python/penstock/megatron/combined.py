"""Overlapped pairs as Megatron's combined forward-backward, in which each part runs during the all-to-alls of the other."""

from __future__ import annotations

from typing import Any

import torch

from penstock.megatron.checks import contracts
from penstock.megatron.lanes import Action
from penstock.megatron.step import Stage, Step, set_view

_combined = contracts.function(
    "combined_forward_backward_step",
    "megatron.core.pipeline_parallel.combined_1f1b",
    required="forward_step_func data_iterator f_model num_microbatches input_tensor forward_data_store b_model b_input_tensor "
    "b_output_tensor b_output_tensor_grad config f_model_chunk_id collect_non_loss_data is_first_microbatch current_microbatch",
)
_set_streams = contracts.attribute("set_streams", "megatron.core.pipeline_parallel.utils")

_NO_FORWARD: dict[str, Any] = {"data_iterator": None, "f_model": None, "input_tensor": None}
_NO_BACKWARD: dict[str, Any] = dict.fromkeys(("b_model", "b_input_tensor", "b_output_tensor", "b_output_tensor_grad"))


class CombinedStep(Step):
    """A step in which the two parts of a pair run layer by layer, in turn.

    Forwards and backwards without a partner run by the same function, which keeps what the backward needs with the output.
    """

    _partner: tuple[Stage, dict[str, Any]] | None = None  # the forward that the next backward takes with it
    _made: tuple[torch.Tensor, torch.Tensor] | None = None  # and what it returned

    def _run_actions(self, actions: list[Action]) -> None:
        _set_streams()
        remaining = iter(actions)
        for action in remaining:
            if action.paired:
                self._run_pair(action, next(remaining))
            else:
                self._run_action(action)

    def _run_pair(self, *parts: Action) -> None:
        forward, backward = parts if parts[0].op == "F" else parts[::-1]
        stage, microbatch = self._stages[forward.stage], forward.microbatch
        given = self._take_input(stage, microbatch)
        self._partner = stage, self._arguments(stage, microbatch, given)
        self._run_action(backward)
        assert self._made is not None
        self._keep_output(stage, microbatch, given, *self._made)

    def _run_forward_step(self, stage: Stage, microbatch: int, given: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        output, tokens, _ = _combined(**self._arguments(stage, microbatch, given), **_NO_BACKWARD)
        return output, tokens

    def _run_backward_step(
        self, stage: Stage, given: torch.Tensor | None, output: torch.Tensor, gradient: torch.Tensor | None
    ) -> torch.Tensor | None:
        partner, self._partner = self._partner, None
        forward = {**self._of_all_microbatches(), **_NO_FORWARD}
        if partner is not None:
            forward = partner[1]
            set_view(partner[0])  # Megatron asks for the rank in the forward alone
        backward = {
            "b_model": stage.model,
            "b_input_tensor": given,
            "b_output_tensor": output,
            "b_output_tensor_grad": gradient,
        }
        made, tokens, input_gradient = _combined(**forward, **backward)
        self._made = made, tokens
        return input_gradient  # type: ignore[no-any-return]

    def _arguments(self, stage: Stage, microbatch: int, given: torch.Tensor | None) -> dict[str, Any]:
        return {
            **self._of_all_microbatches(),
            "data_iterator": stage.iterator,
            "f_model": stage.model,
            "input_tensor": given,
            "f_model_chunk_id": stage.vp_stage,
            "is_first_microbatch": self._is_first(cond=microbatch == 0),
            "current_microbatch": microbatch,
        }

    def _of_all_microbatches(self) -> dict[str, Any]:
        return {name: value for name, value in self._forward.items() if name != "cp_group_size"}
