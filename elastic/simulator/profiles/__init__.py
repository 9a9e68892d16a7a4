"""Jobs by their measured profiles: how fast a step is at a placement and a batch, and what a batch is worth."""
