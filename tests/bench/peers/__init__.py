"""What a step costs with durastore's peers, measured in the same run as durastore and the raw driver's floor."""
