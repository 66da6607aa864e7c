"""Stage `graph`: the dimension tree and the functions of its leaves."""
