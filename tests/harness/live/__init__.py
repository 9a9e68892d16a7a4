"""Jobs of real processes: a coordinator and workers that train, come, go, are killed, stopped and cut off."""
