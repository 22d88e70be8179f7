"""How a job is stopped and brought back: one module a method, each pure; they give orders and judge what is seen."""
