"""What a host program may do to the library: floating-point modes, forks, signals, threads."""

import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

import spmoe

HERE = os.path.dirname(os.path.abspath(__file__))

# Prints a digest of products of subnormal numbers. flush() flushes them to zero and rounds toward
# zero in the thread that calls it, and in threads that it starts afterwards.
PRODUCTS = """
import ctypes, hashlib, sys
import numpy as np
sys.path.insert(0, {here!r})
libm, env = ctypes.CDLL("libm.so.6"), (ctypes.c_uint32 * 8)()
def flushes():
    libm.fegetenv(env)
    return env[7] & 0xe040 == 0xe040
def flush():
    libm.fegetenv(env)
    env[7] |= 0xe040
    libm.fesetenv(env)
    assert flushes()
{first}
import spmoe
{second}
x, digest = np.load({inputs!r}), hashlib.sha256()
for sum in ("fp32", "exact", "h100", "b200"):
    digest.update(spmoe.matmul(x, x.T, sum=sum, threads=2).tobytes())
for recipe in ("bf16", "mxfp8", "nvfp4", "fp8-block"):
    for part in spmoe.linear(x, x, x, recipe, threads=2):
        digest.update(part.tobytes())
print(digest.hexdigest(), flushes())
"""


def python(script, **kwargs):
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, **kwargs)


class Process(unittest.TestCase):
    @unittest.skipUnless(platform.machine() == "x86_64", "MXCSR")
    def test_flush_to_zero(self):
        """A program that flushes subnormals to zero, before or after it loads the library, gets the same bits and keeps its mode."""
        x = np.ldexp(np.random.default_rng(3).standard_normal((256, 256)), -66)  # products are subnormal
        x[::7] = np.ldexp(x[::7], -62)  # and these numbers are
        with tempfile.TemporaryDirectory() as folder:
            inputs = os.path.join(folder, "x.npy")
            np.save(inputs, spmoe.bfloat16(x))

            def run(first, second):
                done = python(PRODUCTS.format(here=HERE, inputs=inputs, first=first, second=second))
                self.assertEqual(done.returncode, 0, done.stderr)
                return done.stdout.split()
            digest, flushes = run("", "")
            self.assertEqual(flushes, "False")
            self.assertEqual(run("flush()", ""), [digest, "True"])
            self.assertEqual(run("", "flush()"), [digest, "True"])

    def test_fork(self):
        """A call in a forked child raises, and the parent goes on."""
        x = spmoe.bfloat16(np.ones((64, 64)))
        spmoe.matmul(x, x.T, threads=2)
        child = os.fork()
        if child == 0:
            try:
                spmoe.matmul(x, x.T, threads=2)
            except RuntimeError as e:
                os._exit(7 if "was forked" in str(e) else 8)
            os._exit(9)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
        self.assertEqual(spmoe.matmul(x, x.T, threads=2)[0, 0], 64)

    def test_interrupt(self):
        """Ctrl-C is a KeyboardInterrupt after the call that is running."""
        # A shell's job in the background ignores Ctrl-C, and so would Python.
        script = (f"import signal, sys, numpy as np; sys.path.insert(0, {HERE!r})\n"
                  "signal.signal(signal.SIGINT, signal.default_int_handler); import spmoe\n"
                  "x = spmoe.bfloat16(np.ones((256, 256)))\ntry:\n    print('ready', flush=True)\n"
                  "    while True: spmoe.matmul(x, x.T, threads=2)\n"
                  "except KeyboardInterrupt:\n    print('interrupted', spmoe.matmul(x, x.T)[0, 0])\n")
        child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(child.stdout.readline(), "ready\n")
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        self.addCleanup(child.kill)
        out, err = child.communicate(timeout=60)
        self.assertEqual((out, err, child.returncode), ("interrupted 256.0\n", "", 0))

    def test_handlers(self):
        """Handlers of the program stay its own, a SIGPIPE is still an exception, and other threads run during a call."""
        script = (f"import os, sys, signal, threading, numpy as np; sys.path.insert(0, {HERE!r})\n"
                  "before = [signal.getsignal(s) for s in signal.valid_signals()]\nimport spmoe\n"
                  "assert before == [signal.getsignal(s) for s in signal.valid_signals()]\n"
                  "x = spmoe.bfloat16(np.ones((64, 64)))\nresults = []\n"
                  "threads = [threading.Thread(target=lambda: results.append(spmoe.matmul(x, x.T, threads=2).sum())) for _ in range(8)]\n"
                  "[t.start() for t in threads]; [t.join() for t in threads]\n"
                  "assert results == [64.0 ** 3] * 8, results\n"
                  "got = []\nsignal.signal(signal.SIGUSR1, lambda *_: got.append(1)); os.kill(os.getpid(), signal.SIGUSR1); assert got\n"
                  "r, w = os.pipe(); os.close(r)\ntry:\n    os.write(w, b'x')\nexcept BrokenPipeError:\n    print('done')\n")
        done = python(script)
        self.assertEqual((done.stdout, done.stderr), ("done\n", ""))

    def test_missing_library(self):
        done = python(f"import sys; sys.path.insert(0, {HERE!r}); import spmoe", env={**os.environ, "SPMOE_LIBRARY": "/nonexistent.so"})
        self.assertIn("go build -buildmode=c-shared -o python/libspmoe.so ./python", done.stderr)

    def test_tier(self):
        """SPMOE_CPU lowers the tier; an unknown one is an error."""
        script = f"import sys; sys.path.insert(0, {HERE!r}); import spmoe; print(spmoe.info()['tier'])"
        self.assertEqual(python(script, env={**os.environ, "SPMOE_CPU": "generic"}).stdout, "generic\n")
        self.assertIn("SPMOE_CPU=sse9 is not a tier", python(script, env={**os.environ, "SPMOE_CPU": "sse9"}).stderr)


if __name__ == "__main__":
    unittest.main()
