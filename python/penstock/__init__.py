"""Pipeline-parallel schedules as data: generate, edit, validate, simulate and draw them.

import penstock

schedule = penstock.schedule("zbv", ranks=8, microbatches=32)
assert schedule.validate() == []
run = schedule.simulate(penstock.Costs.uniform(comm=0.1))
print(run.makespan, run.bubble)
run.report("zbv.html")
"""

from penstock._core import Algorithm, Error, Fault, Field, Pass, __version__, devices, models
from penstock.actions import (
    ACTION,
    BUBBLE,
    BUBBLE_CAUSES,
    MESSAGE,
    NO_OP,
    OP,
    OPS,
    RANK,
    STAGE_COSTS,
    TIMED_ACTION,
    Records,
    actions,
    texts,
)
from penstock.catalog import passes, schedule, schedules
from penstock.costs import Costs
from penstock.display import Comparison, Listing
from penstock.plans import Plan, plan
from penstock.scenarios import fields, simulate, sweep
from penstock.schedule_data import Lanes, Schedule
from penstock.simulation import Simulation, Timeline, compare

__all__ = [
    "ACTION",
    "BUBBLE",
    "BUBBLE_CAUSES",
    "MESSAGE",
    "NO_OP",
    "OP",
    "OPS",
    "RANK",
    "STAGE_COSTS",
    "TIMED_ACTION",
    "Algorithm",
    "Comparison",
    "Costs",
    "Error",
    "Fault",
    "Field",
    "Lanes",
    "Listing",
    "Pass",
    "Plan",
    "Records",
    "Schedule",
    "Simulation",
    "Timeline",
    "__version__",
    "actions",
    "compare",
    "devices",
    "fields",
    "models",
    "passes",
    "plan",
    "schedule",
    "schedules",
    "simulate",
    "sweep",
    "texts",
]
