"""PyFlink's settings: configurations, backends, strategies, as values over the options."""
