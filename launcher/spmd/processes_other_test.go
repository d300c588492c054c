//go:build !linux

package spmd

import (
	"context"
	"strings"
	"testing"
)

// Without Linux, a job of rank processes says what to use instead.
func TestProcessesNeedLinux(t *testing.T) {
	err := (&Processes{Ranks: 2}).Run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "use --ranks goroutine") {
		t.Errorf("%v, want the advice to use goroutines", err)
	}
}
