"""opsgen."""
