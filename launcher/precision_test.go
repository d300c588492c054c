package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// TestPrecisionFlags: what exists is accepted, with or without kernels, the rest is refused with
// the choices.
func TestPrecisionFlags(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		flags string
		code  int
		words string
	}{
		{"--precision mxfp8 --mx.gradient e5m2 --mx.scale floor", exitOK, "gradient = 'e5m2'"},
		{"--precision fp4", exitUsage, "mxfp8-experts"},
		{"--mx.scale up", exitUsage, "rceil"},
		{"--mx.gradient e6m1", exitUsage, "e5m2"},
		{"--precision mxfp8 --mx.gradient e2m1", exitOK, "gradient = 'e2m1'"},
	} {
		var out, errOut bytes.Buffer
		code := run(context.Background(), append([]string{"train", "--dry-run"}, strings.Fields(c.flags)...), &out, &errOut)
		if text := out.String() + errOut.String(); code != c.code || !strings.Contains(text, c.words) {
			t.Errorf("%s: exit code %d and %q, want %d and %q", c.flags, code, text, c.code, c.words)
		}
	}
}
