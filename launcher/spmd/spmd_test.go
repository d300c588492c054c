package spmd

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"spmoe/collective"
)

var errBroken = errors.New("it is broken")

// fail is a function of its own for the stack trace to name.
func fail() { panic("out of paper") }

// A rank that fails ends the job: Run names it, and every other rank gets an error that does.
func TestFailure(t *testing.T) {
	for name, c := range map[string]struct {
		body func() error
		want []string
	}{
		"error":             {func() error { return errBroken }, []string{"rank 2: it is broken"}},
		"panic":             {func() error { fail(); return nil }, []string{"rank 2: panic: out of paper", "spmd.fail", "spmd_test.go"}},
		"runtime error":     {func() error { var s []int; s[len(s)]++; return nil }, []string{"rank 2: panic: runtime error: index out of range", "goroutine"}},
		"panic of an error": {func() error { panic(errBroken) }, []string{"rank 2: panic: it is broken"}},
	} {
		t.Run(name, func(t *testing.T) {
			var told atomic.Int32
			err := Goroutines{N: 4}.Run(func(comm *collective.Comm) error {
				if err := comm.Barrier(); err != nil {
					return err
				}
				if comm.Rank() == 2 {
					return c.body()
				}
				err := comm.Barrier()
				var abort *collective.AbortError
				if errors.As(err, &abort) && abort.Rank == 2 {
					told.Add(1)
				}
				return err
			})
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %q in it", err, want)
				}
			}
			if told.Load() != 3 {
				t.Errorf("%d of 3 other ranks were told that rank 2 failed", told.Load())
			}
		})
	}
}
