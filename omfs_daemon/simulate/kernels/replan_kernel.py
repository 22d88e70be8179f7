"""The search for a plan, compiled as it stands in the policy."""

from __future__ import annotations

from inspect import getmodule, isfunction

from numba.extending import register_jitable

from omfs_daemon.policy.replan import first_plans, hole_starts, list_schedule, plan_problem, plan_search
from omfs_daemon.simulate.kernels.compiling import kernel

for module in (plan_problem, list_schedule, first_plans, hole_starts, plan_search):
    for function in list(vars(module).values()):
        if isfunction(function) and getmodule(function) is module and function is not plan_search.find_plan:
            register_jitable(function)

search_plan = kernel(plan_search.find_plan)
