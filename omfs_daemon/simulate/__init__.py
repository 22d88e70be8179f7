"""Virtual time: workloads, machines that exist on paper only, and the policies that share them out."""
