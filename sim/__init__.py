"""leadline: how deep to speculate, from calibrated step costs and your traffic."""

__version__ = "0.1.0"
