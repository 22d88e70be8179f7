"""The manual pages, made from the command lines and the configuration's schema."""
