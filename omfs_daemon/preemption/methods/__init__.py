"""Methods of preempting and resuming jobs: one module each, pure. They return orders and judge what is observed."""
