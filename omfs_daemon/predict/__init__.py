"""How long jobs will run, predicted from jobs that have ended. Pure: what ended is told, times are passed in.

Predictions rank and inform: they never end a job, change a time limit, or overbook.
"""
