import asyncio
import signal


async def main():
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    print("ready", flush=True)
    await ended.wait()
    process = await asyncio.create_subprocess_exec("sh", "-c", "exit 4")
    print("asked to end", await process.wait())


asyncio.run(main())
