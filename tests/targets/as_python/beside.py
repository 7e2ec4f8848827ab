print("imported", __name__, __file__)
