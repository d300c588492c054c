package main

// What ranks on several hosts compute, what they send, and how long that takes.

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"spmoe/bench/exchange"
	"spmoe/collective/mesh"
	"spmoe/internal/testing/hosts"
)

// Two or four hosts end with the bits of one, with either MPI. Four shard the dense weights.
func (built programs) agree(t *testing.T) {
	for _, n := range []int{2, 4} {
		var want string
		for _, mpi := range mpis {
			program := built[mpi]
			if want == "" {
				out := filepath.Join(t.TempDir(), "run")
				ended(t, exec.CommandContext(limited(t), program, append([]string{"-np", fmt.Sprint(2 * n), "--ranks", "process"}, trainingArgs(out)...)...))
				want = saved(t, out)
			}
			t.Run(fmt.Sprintf("%s, %d hosts", mpi, n), func(t *testing.T) {
				c := hosts.New(t, n, hosts.Link{Rate: 1e9})
				out := filepath.Join(t.TempDir(), "run")
				text := ended(t, c.MPIRun(limited(t), mpi, 2, program, trainingArgs(out, fmt.Sprintf("--set=fsdp=%t", n == 4))...))
				if saved(t, out) != want {
					t.Error("the checkpoint differs from that of one host")
				}
				for h := range n {
					if says := fmt.Sprintf("host host%d: rank %d to %d", h, 2*h, 2*h+1); !strings.Contains(text, says) {
						t.Errorf("the first line does not say %q:\n%s", says, text)
					}
				}
				if strings.Count(text, "done: 3 steps") != 1 {
					t.Errorf("not one rank tells of the run:\n%s", text)
				}
			})
		}
	}
}

// A pipeline ends with the bits of one host if its stages are on different hosts, and if the ranks
// of a stage are.
func (built programs) stages(t *testing.T) {
	built.endAlike(t, "--pp", "2", "--set", "pp_schedule=DualPipeV", "--set", "pp_microbatches=4", "--set", "pp_overlap=true", "--set", "model.layers=4")
}

// Sequences on several hosts, whose ranks are processes here, end with the bits of one host.
func (built programs) sequences(t *testing.T) {
	built.endAlike(t, "--cp", "2", "--tp", "2", "--set", "fsdp=true", "--precision", "mxfp8", "--seq", "256", "--batch", "4")
}

// endAlike trains 4 ranks on one host, and on 2 and 4 hosts with each MPI. The checkpoints are the
// same.
func (built programs) endAlike(t *testing.T, options ...string) {
	t.Helper()
	in := func(out string) []string { return trainingArgs(out, options...) }
	one := filepath.Join(t.TempDir(), "run")
	ended(t, exec.CommandContext(limited(t), built[mpis[0]], append([]string{"-np", "4", "--ranks", "process"}, in(one)...)...))
	want := saved(t, one)
	for _, mpi := range mpis {
		for _, each := range []int{2, 1} {
			t.Run(fmt.Sprintf("%s, %d ranks per host", mpi, each), func(t *testing.T) {
				c := hosts.New(t, 4/each, hosts.Link{Rate: 1e9})
				out := filepath.Join(t.TempDir(), "run")
				ended(t, c.MPIRun(limited(t), mpi, each, built[mpi], in(out)...))
				if saved(t, out) != want {
					t.Error("the checkpoint differs from that of one host")
				}
			})
		}
	}
}

// Replicas of experts on several hosts end with the bits of one host. SPMOE_LAYOUTS=all does it
// with all 20 layouts of 8 ranks, pipelines too, in BF16 and MXFP8.
func (built programs) replicas(t *testing.T) {
	all := os.Getenv("SPMOE_LAYOUTS") == "all"
	n := 0
	for _, precision := range []string{"mxfp8", "bf16"} {
		in := func(out string, l mesh.Layout) []string {
			return trainingArgs(out, append(layoutArgs(l), "--precision", precision, "--set", "model.layers=8")...)
		}
		one := filepath.Join(t.TempDir(), "run")
		ended(t, exec.CommandContext(limited(t), built[mpis[0]], append([]string{"-np", "8", "--ranks", "process"}, in(one, mesh.Default(8))...)...))
		want := saved(t, one)
		for _, pp := range []int{1, 2, 4, 8} {
			for _, l := range mesh.Pipelines(8, pp, 16) {
				for _, each := range []int{4, 2} {
					if n++; !all && (precision != "mxfp8" || l.Name() != "dp1x8-ep2") {
						continue
					}
					mpi := mpis[n/2%len(mpis)]
					t.Run(fmt.Sprintf("%s, %s, %d ranks per host, %s", precision, l.Name(), each, mpi), func(t *testing.T) {
						c := hosts.New(t, 8/each, hosts.Link{Rate: 1e9})
						out := filepath.Join(t.TempDir(), "run")
						ended(t, c.MPIRun(limited(t), mpi, each, built[mpi], in(out, l)...))
						if saved(t, out) != want {
							t.Error("the checkpoint differs from that of one host")
						}
					})
				}
			}
		}
	}
}

// layoutArgs are the flags of a layout.
func layoutArgs(l mesh.Layout) []string {
	args := strings.Fields(fmt.Sprintf("--set dp_replicate=%d --ep %d", l.DPReplicate, l.EP))
	if l.PP > 1 {
		args = append(args, strings.Fields(fmt.Sprintf("--pp %d --set pp_microbatches=%d", l.PP, 2*l.PP))...)
	}
	return args
}

// The links carry per step what the formulas say, with the headers of TCP and MPI.
// SPMOE_LAYOUTS=all does it for every ep.
func (built programs) layoutBytes(t *testing.T) {
	const first, last = 2, 6 // steps of two runs, whose difference has no start, evaluation or save
	shape := strings.Fields("--flavor debug --set model.layers=4 --set model.dim=256 --set model.expert_inter=256 --seq 128 --batch 64 --set model.force_balance=true")
	for _, pp := range []int{1, 2} {
		for _, l := range mesh.Pipelines(8, pp, 16) {
			few := l.EP*pp == 4 // a group on several hosts, and replicas of stages
			if l.DPReplicate > 1 || !few && os.Getenv("SPMOE_LAYOUTS") != "all" {
				continue // layouts with the same ep run the same computation
			}
			for _, n := range []int{2, 4} {
				t.Run(fmt.Sprintf("%s, %d hosts", l.Name(), n), func(t *testing.T) {
					program := built[hosts.OpenMPI]
					args := append([]string{"-np", "8", "layouts", "--json", "--hosts", fmt.Sprint(n)}, append(shape, layoutArgs(l)...)...)
					var says struct {
						Layout string
						Moved  struct {
							Network float64 `json:"network_bytes"`
						}
					}
					text := ended(t, exec.CommandContext(limited(t), program, args...))
					for line := range strings.Lines(text) {
						if err := json.Unmarshal([]byte(line), &says); err != nil {
							t.Fatalf("%v: %s", err, text)
						}
						if says.Layout == l.Name() {
							break
						}
					}
					if says.Layout != l.Name() {
						t.Fatalf("%s is not in %s", l.Name(), text)
					}
					sent := 0.0
					for steps, sign := range map[int]float64{first: -1, last: 1} {
						c := hosts.New(t, n, hosts.Link{Rate: 10e9})
						args := append([]string{"train", "--steps", fmt.Sprint(steps), "--eval-every", "0", "--set", "eval_sequences=8", "--set", "sample_tokens=0", "--out", filepath.Join(t.TempDir(), "run")}, append(shape, layoutArgs(l)...)...)
						ended(t, c.MPIRun(limited(t), hosts.OpenMPI, 8/n, program, args...))
						for _, h := range c.Hosts {
							sent += sign * float64(h.Sent())
						}
					}
					want := 8 * (last - first) * says.Moved.Network
					if t.Logf("%.1f MB per step, %.4f of the formula", sent/(last-first)/1e6, sent/want); sent < want || sent > 1.01*want {
						t.Errorf("the links carry %.4f times the bytes of the formula", sent/want)
					}
				})
			}
		}
	}
}

// A slow link and a slow host change the time of a step, and no bit. The times are in the log. With
// SPMOE_LAYOUTS=all there are more of both.
func (built programs) slow(t *testing.T) {
	program, mpi := built[hosts.OpenMPI], hosts.OpenMPI
	layouts, all := map[string][]string{"replicas": {"--ep", "2"}}, os.Getenv("SPMOE_LAYOUTS") == "all"
	if all {
		layouts["exchange"], layouts["stages"] = nil, []string{"--pp", "2", "--set", "pp_microbatches=8", "--ep", "2"}
	}
	for name, layout := range layouts {
		in := func(out string) []string {
			return append(trainingArgs(out, "--steps", "8", "--eval-every", "0", "--set", "model.layers=4", "--seq", "256"), layout...)
		}
		one := filepath.Join(t.TempDir(), "run")
		ended(t, exec.CommandContext(limited(t), program, append([]string{"-np", "4", "--ranks", "process"}, in(one)...)...))
		want := savedAt(t, one, 8)
		t.Logf("%s: one host, %.2f s per step", name, secondsPerStep(t, one))
		for _, c := range []struct {
			what   string
			second hosts.Link // of host1
			stops  bool       // half of the time
		}{
			{"10 Gbit/s", hosts.Link{Rate: 10e9}, false},
			{"10 and 1 Gbit/s", hosts.Link{Rate: 1e9}, false},
			{"10 and 0.1 Gbit/s", hosts.Link{Rate: 1e8}, false},
			{"10 Gbit/s, one host stops half of the time", hosts.Link{Rate: 10e9}, true},
		} {
			if !all && !c.stops && c.second.Rate > 1e8 {
				continue
			}
			on := hosts.New(t, 2, hosts.Link{Rate: 10e9})
			on.Hosts[1].Limit(c.second)
			out := filepath.Join(t.TempDir(), "run")
			ctx, stop := context.WithCancel(limited(t))
			done := make(chan struct{})
			go func() {
				defer close(done)
				for ; c.stops && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
					on.Hosts[1].Signal(program, syscall.SIGSTOP)
					time.Sleep(50 * time.Millisecond)
					on.Hosts[1].Signal(program, syscall.SIGCONT)
				}
			}()
			ended(t, on.MPIRun(ctx, mpi, 2, program, in(out)...))
			stop()
			<-done
			if savedAt(t, out, 8) != want {
				t.Errorf("%s, %s: the checkpoint differs from that of one host", name, c.what)
			}
			t.Logf("%s: %s, %.2f s per step", name, c.what, secondsPerStep(t, out))
		}
	}
}

// secondsPerStep is the median of a run's steps, without the first two.
func secondsPerStep(t *testing.T, run string) float64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(run, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var all []float64
	for line := range strings.Lines(string(text)) {
		var r struct{ Step *struct{ Seconds float64 } }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Step != nil {
			all = append(all, r.Step.Seconds)
		}
	}
	if len(all) < 3 {
		t.Fatalf("%s has %d steps", run, len(all))
	}
	all = all[2:]
	slices.Sort(all)
	return all[len(all)/2]
}

// Hosts with 3 and 5 ranks end with the same bits in every layout, and resume on one host.
func (built programs) uneven(t *testing.T) {
	for _, mpi := range mpis {
		var want string
		for _, ep := range []string{"8", "2"} {
			out := filepath.Join(t.TempDir(), "run")
			ended(t, hosts.New(t, 2, hosts.Link{Rate: 1e9}).MPIRunOn(limited(t), mpi, []int{3, 5}, built[mpi], trainingArgs(out, "--ep", ep)...))
			got := saved(t, out)
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("%s: with --ep %s the checkpoint differs", mpi, ep)
			}
			ended(t, exec.CommandContext(limited(t), built[mpi], "-np", "4", "train", "--resume", "--allow-changes", "--ep", "0", "--out", out, "--steps", "4"))
		}
	}
}

// What crosses the network is what must, and quicker than by the flat exchange. The kernel counts
// the bytes too.
func (built programs) bytes(t *testing.T) {
	for _, mpi := range mpis {
		t.Run(string(mpi), func(t *testing.T) {
			program := built[mpi]
			c := hosts.New(t, 2, hosts.Link{Rate: 1e9})
			path := filepath.Join(t.TempDir(), "link.jsonl")
			t.Log(ended(t, c.MPIRun(limited(t), mpi, 2, program, "bench", "link", "--quick", "--json", path)))
			values, total := map[string]float64{}, 0.0
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				var r exchange.Result
				if err := json.Unmarshal([]byte(line), &r); err != nil {
					t.Fatal(err)
				}
				if values[r.Name] = r.Value; r.Unit == "us" && r.Bytes > 0 {
					total += float64(r.Bytes)
				}
			}
			for _, name := range []string{"hierarchical_dispatch", "hierarchical_dispatch_mxfp8", "hierarchical_combine"} {
				if over := values[name+"_bytes_over_rows"]; over < 1 || over > 1.03 {
					t.Errorf("%s sends %v times the rows that must cross, want at most 1.03", name, over)
				}
			}
			// Every operation was run more than six times; each time its bytes crossed.
			if counted := float64(c.Hosts[0].Sent() + c.Hosts[1].Sent()); counted < 6*total {
				t.Errorf("the links have carried %v bytes, fewer than six times %v", counted, total)
			}
		})
	}
}
