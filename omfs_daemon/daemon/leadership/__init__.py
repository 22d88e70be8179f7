"""Two daemons, of which one acts: the lease, who may take it, and what keeps a late order back."""
