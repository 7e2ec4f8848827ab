import multiprocessing


def work(queue):
    queue.put("from the child")


if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    print(queue.get())
    process.join()
    print(process.exitcode)
