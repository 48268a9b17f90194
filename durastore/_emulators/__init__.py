"""What `durastore.emulators` is made of."""
