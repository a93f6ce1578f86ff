"""The steps of `weights.first_contact`, from the server's answer to the table."""
