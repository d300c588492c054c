package main

// Values of flags that would take all memory or time.

import (
	"fmt"
	"strings"
	"testing"

	"spmoe/launcher/cli"
)

// Command lines that were made to do harm are refused by what is wrong with them.
func TestFlagBombs(t *testing.T) {
	long := strings.Repeat("9", 100_000)
	for _, c := range []struct {
		line string
		rule string
	}{
		{"-np 1000000000 train", "-np is 1000000000: give 1 or more ranks, at most 256"},
		{"-np -1 train", "-np is -1"},
		{"-np " + long + " train", "must be a whole number, 1 or more"},
		{"-np 1e9 train", "must be a whole number"},
		{"-np 0x10 train", "must be a whole number"},
		{"--ranks process --heap-mib 9223372036854775807 train", "--heap-mib is 9223372036854775807: give at most 1073741824"},
		{"--ranks process --heap-mib 17592186044416 train", "--heap-mib is 17592186044416"},
		{"--timeout 99999999h train", "a time, such as"},
		{"--timeout -1s train", "must not be negative"},
		{"--silence NaN train", "a time, such as"},
		{"train --steps " + long, "must be a whole number"},
		{"train --seed -1", "must be a whole number, 0 or more"},
		{"train --optimizer.lr nan", "optimizer.lr is NaN"},
		{"train --set ep_capacity=inf", "ep_capacity is +Inf"},
		{"train --set ep_capacity=NaN", "ep_capacity is NaN"},
		{"train --threads 9223372036854775807", "threads is 9223372036854775807"},
		{"train --out \xff --data \xfe", "is not UTF-8"},
		{"train --" + long + " 1", "unknown flag"},
		{"compare --seeds 99999999999999999999", "value out of range"},
		{"compare --seeds 1000000000", "--seeds is 1000000000: give 1 or more"},
		{"compare --jobs 1000000000", "--jobs is 1000000000: give 1 or more"},
		{"compare --margin nan", "--margin is NaN"},
		{"bench kernels --match (", "missing closing"},
		{"bench kernels --match " + strings.Repeat("(", 2000) + strings.Repeat(")", 2000), "nests too deeply"},
		{"bench kernels --match " + strings.Repeat("(x{1000}){1000}", 1), "invalid repeat count"},
		{"check \x00", "invalid argument"},
	} {
		args := strings.Split(c.line, " ")
		name := fmt.Sprintf("%.60s", c.line)
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			got := setOff(func() error { refuse(t, cli.ExitUsage, args, c.rule); return nil })
			if got.bytes > bombMemory {
				t.Errorf("%d bytes were allocated", got.bytes)
			}
			t.Logf("%v, %d KB", got.time, got.bytes>>10)
			same(t, files(t, "."), nil)
		})
	}
}
