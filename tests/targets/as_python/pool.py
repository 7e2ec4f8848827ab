import multiprocessing
from concurrent.futures import ProcessPoolExecutor


def work(value):
    if value == 3:
        raise ValueError("three")
    return value + 1


if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(work, range(3)))
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as executor:
        print(repr(executor.submit(work, 3).exception()))
