import os
import subprocess
import sys

print(subprocess.run(["sh", "-c", "echo from a shell; exit 3"], check=False).returncode, flush=True)
code = "import os, sys; print(sys.argv, sys.path, sorted(n for n in os.environ if n != '_'), sys.flags.safe_path)"
subprocess.run([sys.executable, "-c", code, "argument"], check=True)
daemon = subprocess.Popen(["sleep", "30"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
with open("daemon", "w") as file:
    file.write(str(daemon.pid))
os._exit(0)
