package main

import (
	"fmt"
	"strings"
	"testing"

	"spmoe/launcher/cli"
)

// A limit on address space is an error in one line, not the runtime's stack trace. The race
// detector alone needs terabytes, and says so.
func TestAddressSpace(t *testing.T) {
	t.Parallel()
	data := text(t)
	for kilobytes, args := range map[int]string{2_100_000: "-np 8 train --data " + data, 3_000_000: "-np 2 train --ranks process --data " + data} {
		p := prepare(t, fmt.Sprintf("ulimit -v %d &&", kilobytes), strings.Fields(args)...)
		p.Dir = t.TempDir()
		code, said := p.begin(t).end(), p.errOut.String()
		if strings.Contains(said, "ThreadSanitizer") {
			t.Skip("the race detector needs more")
		}
		if code != cli.ExitUsage || !strings.Contains(said, "of address space, but needs about") || strings.Count(said, "\n") != 1 {
			t.Errorf("%s: exit code %d:\n%.2000s", args, code, said)
		}
	}
}
