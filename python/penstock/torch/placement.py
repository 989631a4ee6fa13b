"""Where the stages of a schedule are: in the model, on a rank, in a process; and what their replicas divide."""

from __future__ import annotations

from penstock import Error, Schedule, _core


class Placement:
    """The schedule's stages are numbered chain by chain. Each chain is a replica of the model."""

    def __init__(self, schedule: Schedule, processes: int, process: int) -> None:
        """``process``: this one."""
        if processes > schedule.ranks:
            raise Error(f"{processes} processes cannot share {schedule.ranks} ranks: start at most {schedule.ranks}")
        self.chain_length = model_stages(schedule)
        self.rank_of = schedule.rank_of_stage
        #: By stage: the process that runs it. Each process runs about the same number of consecutive ranks.
        self.process_of = [rank * processes // schedule.ranks for rank in self.rank_of]
        #: The stages that this process runs.
        self.local = [stage for stage, runs in enumerate(self.process_of) if runs == process]
        #: The stages of the model that this process runs, and a stage of the schedule that computes each.
        self.here = dict(sorted((self.model_stage(stage), stage) for stage in self.local))

    def model_stage(self, stage: int) -> int:
        """Returns the stage of the model that a stage of the schedule computes."""
        return stage % self.chain_length

    def is_last(self, stage: int) -> bool:
        """Whether the stage ends its chain."""
        return self.model_stage(stage) == self.chain_length - 1

    def replicas(self, model_stage: int) -> range:
        """Returns the stages of the schedule that compute a stage of the model."""
        return range(model_stage, len(self.rank_of), self.chain_length)


def model_stages(schedule: Schedule) -> int:
    """Returns how many stages a microbatch passes through."""
    return schedule.stages // schedule.replicas


def zero_of(zero: int, data_parallel: int, schedule: Schedule) -> int:
    """Returns what replicas divide (ZeRO): the two chains of a bidirectional schedule share no gradients."""
    return _core.zero_of(schedule._frozen(), data_parallel, zero)


def divides_weights(zero: int, data_parallel: int, schedule: Schedule, *, has_casts: bool) -> bool:
    """Whether replicas divide the weights that optimizers update, so that modules have none during steps.

    ``zero`` is what `zero_of` returns. ``has_casts``: whether stages compute with casts of these weights.
    """
    return zero == 3 or (has_casts and _core.have_groups(schedule._frozen(), data_parallel, zero))
