"""Groups of pods that are placed together or not at all (gangs): `docs/gangs.md` states the rules. Setting `gangs`."""
