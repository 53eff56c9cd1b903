"""HTTP: translate, call one verb, apply its effects, translate back. Nothing is decided here."""
