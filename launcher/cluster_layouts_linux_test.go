package main

// What ranks on several hosts compute, and what they send.

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/internal/testing/hosts"
)

// Several hosts end with the bits of one, with either MPI, whatever their links divide: experts and
// dense weights, stages of a pipeline, the ranks of a stage, sequences, replicas of experts.
func (built programs) agree(t *testing.T) {
	for name, c := range map[string]struct {
		ranks   int
		perHost []int
		options string
	}{
		"plain":     {4, []int{2}, ""},
		"sharded":   {8, []int{2}, "--set fsdp=true"},
		"stages":    {4, []int{2, 1}, "--pp 2 --set pp_schedule=DualPipeV --set pp_microbatches=4 --set pp_overlap=true --set model.layers=4"},
		"sequences": {4, []int{2, 1}, "--cp 2 --tp 2 --set fsdp=true --precision mxfp8 --seq 256 --batch 4"},
		"replicas":  {8, []int{4, 2}, "--ep 2 --precision mxfp8 --set model.layers=8"},
	} {
		args := func(out string) []string { return trainingArgs(out, strings.Fields(c.options)...) }
		one := filepath.Join(t.TempDir(), "run")
		ended(t, exec.CommandContext(limited(t), built[mpis[0]], append([]string{"-np", fmt.Sprint(c.ranks), "--ranks", "process"}, args(one)...)...))
		want := savedAt(t, one, 3)
		for _, mpi := range mpis {
			for _, each := range c.perHost {
				t.Run(fmt.Sprintf("%s, %s, %d ranks per host", name, mpi, each), func(t *testing.T) {
					cluster := hosts.New(t, c.ranks/each)
					out := filepath.Join(t.TempDir(), "run")
					text := ended(t, cluster.MPIRun(limited(t), mpi, each, built[mpi], args(out)...))
					if savedAt(t, out, 3) != want {
						t.Error("the checkpoint differs from that of one host")
					}
					last := fmt.Sprintf("host host%d: rank ", c.ranks/each-1)
					if !strings.Contains(text, last) || strings.Count(text, "done: 3 steps") != 1 {
						t.Errorf("not one rank tells of the run, and where its ranks are:\n%s", text)
					}
				})
			}
		}
	}
}

// Hosts with 3 and 5 ranks add up in an order of their own, which is that of every layout.
func (built programs) uneven(t *testing.T) {
	for _, mpi := range mpis {
		var sums []string
		for _, ep := range []string{"8", "2"} {
			out := filepath.Join(t.TempDir(), "run")
			ended(t, hosts.New(t, 2).MPIRunOn(limited(t), mpi, []int{3, 5}, built[mpi], trainingArgs(out, "--ep", ep)...))
			sums = append(sums, savedAt(t, out, 3))
		}
		if sums[0] != sums[1] {
			t.Errorf("%s: with replicas of experts the checkpoint differs", mpi)
		}
	}
}

// The links carry per step what the formulas say, with the headers of TCP and MPI.
func (built programs) layoutBytes(t *testing.T) {
	const first, last = 2, 6 // steps of two runs, whose difference has no start, evaluation or save
	shape := strings.Fields("--flavor debug --set model.layers=4 --set model.dim=256 --set model.expert_inter=256 --seq 128 --batch 64 --set model.force_balance=true")
	program := built[hosts.OpenMPI]
	for layout, flags := range map[string]string{"dp1x8-ep4": "--ep 4", "pp2-dp1x4-ep2": "--ep 2 --pp 2 --set pp_microbatches=4"} { // a group on several hosts, and replicas of stages
		for _, n := range []int{2, 4} {
			t.Run(fmt.Sprintf("%s, %d hosts", layout, n), func(t *testing.T) {
				chosen := append(shape, strings.Fields(flags)...)
				text := ended(t, exec.CommandContext(limited(t), program, append([]string{"-np", "8", "inspect", "--layouts", "--json", "--hosts", fmt.Sprint(n)}, chosen...)...))
				network := 0.0
				for line := range strings.Lines(text) {
					var says struct {
						Layout string
						Moved  struct {
							Network float64 `json:"network_bytes"`
						}
					}
					if err := json.Unmarshal([]byte(line), &says); err != nil {
						t.Fatalf("%v: %s", err, text)
					}
					if says.Layout == layout {
						network = says.Moved.Network
					}
				}
				sent := 0.0
				for steps, sign := range map[int]float64{first: -1, last: 1} {
					c := hosts.New(t, n)
					args := append([]string{"train", "--steps", fmt.Sprint(steps), "--eval-every", "0", "--set", "eval_sequences=8", "--set", "sample_tokens=0", "--out", filepath.Join(t.TempDir(), "run")}, chosen...)
					ended(t, c.MPIRun(limited(t), hosts.OpenMPI, 8/n, program, args...))
					for _, h := range c.Hosts {
						sent += sign * float64(h.Sent())
					}
				}
				if want := 8 * (last - first) * network; want == 0 || sent < want || sent > 1.01*want {
					t.Errorf("the links carry %v bytes, the formula says %v: %s", sent, want, text)
				}
			})
		}
	}
}
