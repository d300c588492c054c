package main

import (
	"slices"
	"testing"

	"spmoe/launcher/cli"
	"spmoe/launcher/routes"
)

// Runs record their routes. One that follows those of another has the same experts, in another
// precision and layout too.
func TestRoutes(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	succeed(t, tiny(data, "--out", "a", "--set", "record_routes=true")...)
	succeed(t, tiny(data, "--out", "b", "--set", "record_routes=true", "--precision", "mxfp8", "-np", "2")...)
	succeed(t, tiny(data, "--out", "c", "--set", "record_routes=true", "--precision", "mxfp8", "-np", "2", "--set", "replay_routes=a/routes.arrow")...)
	experts := func(run string) []int32 {
		t.Helper()
		r, err := routes.Open(run + "/routes.arrow")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		s, err := r.At(6)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Clone(s.Experts)
	}
	if own, followed := slices.Equal(experts("a"), experts("b")), slices.Equal(experts("a"), experts("c")); own || !followed {
		t.Errorf("the same experts as in BF16: of its own %v, of a replay %v", own, followed)
	}
	refuse(t, cli.ExitUsage, tiny(data, "--out", "d", "--set", "replay_routes=a/routes.arrow", "--seed", "2"), "seed 1, but this one has 2")
	refuse(t, cli.ExitUsage, []string{"routes", "a/routes.arrow"}, "routes is no command any more: OUT/routes.arrow is an Arrow stream")
}
