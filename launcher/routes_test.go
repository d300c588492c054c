package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/launcher/cli"
)

// Two runs record their routes, and routes describes, compares and exports them.
func TestRoutes(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	succeed(t, tiny(data, "--out", "a", "--record-routes")...)
	succeed(t, tiny(data, "--out", "b", "--record-routes", "--precision", "mxfp8", "-np", "2")...)
	succeed(t, tiny(data, "--out", "c", "--record-routes", "--precision", "mxfp8", "--replay-routes", "a/routes.arrow")...)
	got := succeed(t, "routes", "a/routes.arrow")
	for _, want := range []string{"debug, bf16: 1 layer with 4 experts, top 2", "busiest expert / mean", "\n   6..6  "} {
		if !strings.Contains(got, want) {
			t.Errorf("the output lacks %q: %s", want, got)
		}
	}
	same := strings.Fields(succeed(t, "routes", "a/routes.arrow", "c/routes.arrow", "--steps", "2..2"))
	if got := strings.Join(same[len(same)-5:len(same)-1], " "); got != "2..2 100 100 100" {
		t.Errorf("a replay agrees by %q", got)
	}
	if got := succeed(t, "routes", "a/routes.arrow", "b/routes.arrow", "--steps", "2"); !strings.Contains(got, "debug, mxfp8") || strings.HasSuffix(got, " 0\n") {
		t.Errorf("precisions agree: %s", got)
	}
	succeed(t, "routes", "a/routes.arrow", "--steps", "2..3", "--export", "trace.csv")
	trace, err := os.ReadFile("trace.csv")
	if lines := strings.Count(string(trace), "\n"); err != nil || lines < 100 || !strings.Contains(string(trace), "\n3,1,0,0,") || strings.Contains(string(trace), "\n1,1,") {
		t.Errorf("the trace has %d lines, %v", lines, err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"routes"}, "takes one or two files"},
		{[]string{"routes", "a/routes.arrow", "--export", "trace.csv"}, "trace.csv exists already"},
		{[]string{"routes", "a/routes.arrow", "--steps", "x"}, "give 5..7"},
		{[]string{"routes", "a/routes.arrow", "--steps", "70"}, "has none of the steps"},
		{[]string{"routes", "a/routes.arrow", "a/routes.arrow", "--export", "x.csv"}, "takes one file"},
		{[]string{"routes", "trace.csv"}, "it has no routes"},
		{tiny(data, "--out", "d", "--replay-routes", "a/routes.arrow", "--seed", "2"), "seed 1, but this one has 2"},
	} {
		refuse(t, cli.ExitUsage, c.args, c.want)
	}
	if left, err := filepath.Glob("*.csv"); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}
