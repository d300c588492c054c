"""The programs of docs/python.md run, and print what the page says."""

import contextlib
import io
import os
import re
import unittest

import golden


class Docs(unittest.TestCase):
    def test_programs(self):
        with open(os.path.join(golden.ROOT, "docs/python.md")) as file:
            text = file.read()
        programs = re.findall(r"```python\n(.*?)```(?:\n\n[^`]*?\n\n```text\n(.*?)```)?", text, re.S)
        self.assertEqual(len(programs), 3)
        for program, output in programs:
            with self.subTest(program.splitlines()[-1]):
                if "import torch" in program:
                    try:
                        import torch  # noqa: F401
                    except ImportError:
                        self.skipTest("torch is not installed")
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(program, {})
                if output:
                    self.assertEqual(printed.getvalue(), output)


if __name__ == "__main__":
    unittest.main()
