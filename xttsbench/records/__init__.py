"""The frozen, versioned records that cross a process or file boundary. Pure: no input, no output, no clock."""
