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
	"spmoe/tensor"
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
	return trainOnUnequalHosts(t, slices.Repeat([]int{each}, len(cfgs)), cfgs, from)
}

// trainOnUnequalHosts is trainOnHosts for hosts with these numbers of ranks.
func trainOnUnequalHosts(t *testing.T, sizes []int, cfgs []config.Config, from string) ([]*reports, []error) {
	t.Helper()
	var first []int
	n := 0
	for _, each := range sizes {
		first, n = append(first, n), n+each
	}
	worlds := collective.NewHosts(sizes...)
	said, errs := make([]*reports, len(cfgs)), make([]error, len(cfgs))
	var wg sync.WaitGroup
	for h, w := range worlds {
		said[h] = &reports{}
		job, err := PrepareOn(cfgs[h], n, estimate.Host{Ranks: sizes[h], First: first, Processes: 1}, from, false, said[h])
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { errs[h] = job.Run(context.Background(), host{w, n, sizes[h], h == 0}) })
	}
	wg.Wait()
	return said, errs
}

// onHosts calls body with every rank of a run, a number on each host, and returns what the first
// host has said. corrupt is that of the job.
func onHosts(t *testing.T, cfg config.Config, hosts, each int, corrupt func(r *rank, computed bool), body func(r *rank) error) *reports {
	t.Helper()
	return resumedOnHosts(t, cfg, hosts, each, "", corrupt, body)
}

// onRanks calls body on every rank of a job, prepared from a checkpoint unless resume is empty. The
// machine's peak is not measured.
func onRanks(t *testing.T, cfg config.Config, n int, resume string, body func(r *rank) error) *reports {
	t.Helper()
	return resumedOnHosts(t, cfg, 1, n, resume, nil, body)
}

// resumedOnHosts is onHosts from a checkpoint unless resume is empty.
func resumedOnHosts(t *testing.T, cfg config.Config, hosts, each int, resume string, corrupt func(r *rank, computed bool), body func(r *rank) error) *reports {
	t.Helper()
	said := make([]reports, hosts)
	if err := os.MkdirAll(cfg.Out, 0o777); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	errs := make([]error, hosts)
	for h, w := range collective.NewHosts(slices.Repeat([]int{each}, hosts)...) {
		job, err := PrepareOn(cfg, hosts*each, estimate.Host{Ranks: each, Processes: 1}, resume, false, &said[h])
		if err != nil {
			t.Fatal(err)
		}
		defer job.Close()
		job.corrupt = corrupt
		wg.Go(func() {
			errs[h] = w.Run(func(c *collective.Comm) error {
				ex := tensor.NewExec()
				defer ex.Close()
				r, err := newRank(job, c, ex, 1)
				if err != nil {
					return err
				}
				return body(r)
			})
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return &said[0]
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
			onHosts(t, undisturbed, 2, c.each, nil, run)
			cfg := undisturbed
			cfg.Out = filepath.Join(t.TempDir(), "run")
			var attempts tries
			said := onHosts(t, cfg, 2, c.each, func(r *rank, computed bool) {
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
			if alarms := said.texts(); len(alarms) != 1 || alarms[0] != want {
				t.Errorf("alarms %q, want %q", alarms, want)
			}
			sameState(t, name, cfg, undisturbed, cfg.Steps)
		})
	}
}
