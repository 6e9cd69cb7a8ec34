"""The commands of namesrvctl, one file per group."""
