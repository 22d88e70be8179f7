"""When the waiting jobs of a snapshot will start, in the order of the planner's pass. Pure: the daemon asks it, and the
simulator measures how good its answers are.
"""
