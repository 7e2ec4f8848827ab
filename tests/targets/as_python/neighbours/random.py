name = "its own random"
