package trainer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"spmoe/collective"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
)

// host is the ranks of one host of several, all of this process.
type host struct {
	*collective.World
	ranks int
	here  int
	leads bool
}

func (h host) Ranks() int { return h.ranks }

func (h host) Cores() int { return runtime.GOMAXPROCS(0) }

func (h host) Here() int { return h.here }

func (h host) Leads() bool { return h.leads }

func (h host) Late() bool { return false }

// trainOnHosts runs a configuration for each host, so many ranks on each, and returns what each
// host has said.
func trainOnHosts(t *testing.T, each int, cfgs []config.Config, from string) ([]*reports, []error) {
	t.Helper()
	said, errs := make([]*reports, len(cfgs)), make([]error, len(cfgs))
	var wg sync.WaitGroup
	for h, w := range collective.NewHosts(slices.Repeat([]int{each}, len(cfgs))...) {
		said[h] = &reports{}
		job, err := PrepareOn(cfgs[h], each*len(cfgs), estimate.Host{Ranks: each, Processes: 1}, from, Text{}, said[h])
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { errs[h] = job.Run(context.Background(), host{w, each * len(cfgs), each, h == 0}) })
	}
	wg.Wait()
	return said, errs
}

// Hosts whose folders are not the same are refused, and the marks that tell follow no link.
func TestFoldersOfHosts(t *testing.T) {
	t.Parallel()
	cfgs := []config.Config{tiny(t, nil), {}}
	cfgs[1] = cfgs[0]
	cfgs[1].Out = filepath.Join(t.TempDir(), "run")
	if _, errs := trainOnHosts(t, 2, cfgs, ""); errs[0] == nil || errs[1] == nil || !strings.Contains(errs[0].Error(), "--out on a file system that all hosts share") {
		t.Errorf("two folders: %v", errs)
	}
	for _, cfg := range cfgs {
		if left, _ := filepath.Glob(filepath.Join(cfg.Out, ".host*")); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
	}
	victim := filepath.Join(t.TempDir(), "victim")
	if err := errors.Join(os.WriteFile(victim, []byte("precious"), 0o666), os.Symlink(victim, filepath.Join(cfgs[0].Out, ".host-1"))); err != nil {
		t.Fatal(err)
	}
	cfgs[1].Out = cfgs[0].Out
	if _, errs := trainOnHosts(t, 2, cfgs, ""); errs[1] == nil {
		t.Error("a link in place of a mark was followed")
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
		t.Errorf("the file outside holds %q (%v)", text, err)
	}
}

// Hosts with 1, 2 and 4 ranks train to the bits of one rank, in one pass per step and in several,
// whether each host holds the dense weights or a part of them, with either exchange, and with rows
// quantized on the way.
func TestOneResultForAllHosts(t *testing.T) {
	t.Parallel()
	two := []placed{onEqualHosts(2, 2, false)}
	for name, c := range map[string]struct {
		places []placed
		change func(*config.Config)
	}{
		"bf16":              {[]placed{two[0], onEqualHosts(2, 2, true), onEqualHosts(2, 1, true), onEqualHosts(4, 1, false)}, func(*config.Config) {}},
		"mxfp8, 2 passes":   {[]placed{onEqualHosts(4, 2, true), onEqualHosts(2, 4, false)}, func(c *config.Config) { c.Precision, c.Batch, c.MicroBatch = "mxfp8", 16, 8 }},
		"mxfp8 on the wire": {two, func(c *config.Config) { c.Precision, c.EPDispatch, c.EPCombine = "mxfp8", "mxfp8", "mxfp8" }},
		"standard exchange": {two, func(c *config.Config) { c.EPExchange = "standard" }},
	} {
		t.Run(name, func(t *testing.T) {
			sameBits(t, func() config.Config {
				cfg := layoutRun(t, "bf16")
				c.change(&cfg)
				return cfg
			}, c.places)
		})
	}
}

// A copy of weights that has changed on one of two hosts is found and published again: of dense
// weights, of experts that ranks of a host share or do not, and of ranks that share a sequence.
func TestCopiesOnHostsChange(t *testing.T) {
	for name, c := range map[string]struct {
		each, odd, group int
		change           func(*config.Config)
		what             string
	}{
		"dense":             {2, 2, 1, nil, "dense"},
		"experts":           {2, 3, 2, func(c *config.Config) { c.EP = 2 }, "expert"},
		"shared experts":    {2, 2, 2, func(c *config.Config) { c.EP = 1 }, "expert"},
		"a shared sequence": {1, 1, 1, func(c *config.Config) { c.CP, c.Seq = 2, 64 }, "dense"},
	} {
		t.Run(name, func(t *testing.T) {
			undisturbed := guardedConfig(t, c.change)
			if _, err := ranksOn(t, undisturbed, []int{c.each, c.each}, "", nil, run); err != nil {
				t.Fatal(err)
			}
			cfg := undisturbed
			cfg.Out = filepath.Join(t.TempDir(), "run")
			var attempts tries
			said, err := ranksOn(t, cfg, []int{c.each, c.each}, "", func(r *rank, computed bool) {
				if r.Progress.Step+1 != 5 || computed || attempts.next(r) != 1 {
					return
				}
				if r.comm.Rank() == c.odd {
					r.Model.Groups[c.group].Work.Bytes()[0] ^= 1
				}
				if err := r.comm.Barrier(); err != nil {
					t.Error(err)
				}
			}, run)
			want := fmt.Sprintf("step 5: %s weights of rank %d changed in memory: they are published again", c.what, c.odd)
			if alarms := said.texts(); err != nil || len(alarms) != 1 || alarms[0] != want {
				t.Errorf("alarms %q, want %q", alarms, want)
			}
			sameState(t, name, cfg, undisturbed, cfg.Steps)
		})
	}
}
