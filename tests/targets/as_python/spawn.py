import multiprocessing


def square(value):
    return value * value


if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(pool.map(square, range(5)))
