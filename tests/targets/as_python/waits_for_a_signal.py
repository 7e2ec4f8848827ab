import signal

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print("ready", flush=True)
print(signal.sigwait([signal.SIGUSR1]).name)
