package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// TestBenchUsage: what is not a benchmark is the user's mistake, and nothing is measured.
func TestBenchUsage(t *testing.T) {
	for _, args := range [][]string{{"bench"}, {"bench", "kernel"}, {"bench", "kernels", "twice"}, {"bench", "kernels", "--json", t.TempDir()}} {
		var out, errOut bytes.Buffer
		if code := run(context.Background(), args, &out, &errOut); code != exitUsage {
			t.Errorf("%v: exit code %d, want %d", args, code, exitUsage)
		}
		if out.Len() > 0 || !strings.Contains(errOut.String(), "launcher: ") {
			t.Errorf("%v: output %q, errors %q", args, out.String(), errOut.String())
		}
	}
}
