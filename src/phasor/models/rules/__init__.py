"""What single families do that no field of a row says: functions, to which `rows.json` refers by their names."""
