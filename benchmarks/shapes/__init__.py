"""What becomes of some eighty shapes of programs that are stopped at random moments and run again, by each method."""
