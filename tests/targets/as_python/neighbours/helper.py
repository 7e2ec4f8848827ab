class Thing:
    def __repr__(self):
        return "a thing"
