name = "its own queue"
