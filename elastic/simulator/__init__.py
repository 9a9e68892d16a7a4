"""The policy laboratory: scenarios replayed through the code that decides in production, under a virtual clock."""
