"""What durability costs on a store, in floors of its raw driver: ``durastore bench``."""
