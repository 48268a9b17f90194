"""``durastore demo``: the same kills for five ways to run the same steps, counted by the outside world."""
