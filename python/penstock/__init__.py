"""Pipeline-parallel schedules as data: generate, edit, validate, simulate and draw them.

    import penstock

    schedule = penstock.schedule("zbv", ranks=8, microbatches=32)
    assert schedule.validate() == []
    run = schedule.simulate(comm=0.1)
    print(run.makespan, run.bubble)
    run.report("zbv.html")
"""
from penstock._core import Costs, Error, Fault, Simulation, StageCosts
from penstock._schedule import ACTION, OPS, Schedule, from_csv, schedule

__all__ = ["ACTION", "OPS", "Costs", "Error", "Fault", "Schedule", "Simulation", "StageCosts", "from_csv", "schedule"]
