import pickle
import random

import queue
from helper import Thing

print(queue.name, random.name, random.__file__, queue.__file__, Thing.__module__)


class Own:
    value = 1


print(pickle.loads(pickle.dumps(Own())).value, Own.__module__, pickle.loads(pickle.dumps(Thing())))
