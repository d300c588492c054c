package main

// Attacks on jobs: rank processes fail wherever the code passes a fault point, data are damaged,
// the launcher is killed. Each run must end with the bits of one that nothing disturbed.

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"spmoe/internal/fault"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/cli"
	"spmoe/launcher/record"
	"spmoe/launcher/spmd"
	"spmoe/launcher/training"
)

// launchTrain executes a command line of train whose rank processes get orders to fail.
func launchTrain(ctx context.Context, args []string, orders func(rank int, generation uint32) string, out, errOut io.Writer) int {
	fs, train := cli.Command{Define: training.DefineTrain}.Flags()
	flags := slices.DeleteFunc(slices.Clone(args), func(word string) bool { return word == "train" })
	rest, err := cli.Parse(fs, flags)
	if err == nil {
		err = train(ctx, cli.Env{Args: rest, CommandLine: args, Out: out, ErrOut: errOut, Fault: orders})
	}
	return cli.ExitCode(err, errOut)
}

// job is the command line of a run that does all that runs do: evaluations, records, checkpoints.
func job(out string, steps int, more ...string) []string {
	return processRun(out, append(strings.Fields(fmt.Sprintf(`--spares 1 --restarts 1000 --timeout 20s --steps %d --save-every 10 --eval-every 15
		--set record_every=10 --log-format json --set log_every=1`, steps)), more...)...)
}

// Places of random kills, those of every step first.
var (
	stepPlaces = []fault.Place{
		fault.BeforeMeeting, fault.InMeeting, fault.AfterMeeting, fault.BeforeReduction, fault.InReduction, fault.AfterReduction, fault.InGather,
		fault.BeforePut, fault.InPut, fault.InMessage, fault.AfterPut, fault.BeforeGet, fault.InGet, fault.AfterGet,
		fault.BeforeStep, fault.InWeights, fault.InState, fault.InGradient, fault.BetweenPasses, fault.InUpdate, fault.InPublishing, fault.AfterStep,
		fault.BeforeKeep, fault.InKeep, fault.AfterKeep,
	}
	// At these, the first pass counts: a later one may be in the last checkpoint.
	rarePlaces = []fault.Place{
		fault.InEvaluation, fault.InSnapshot, fault.InCreate, fault.InWrite, fault.InSync, fault.InManifest, fault.InRename, fault.AfterRename, fault.InPrune,
		fault.BeforeRecord, fault.AfterRecord, fault.BeforeJoin, fault.AfterJoin, fault.InStart,
		fault.BeforePark, fault.AfterPark, fault.BeforeBack, fault.InBack, fault.AfterBack,
	}
)

// randomKill returns orders that end a process at a random place. Every process passes the last
// one's place, soon.
func randomKill(rng *rand.Rand) string {
	last := fault.Order{Action: fault.Kill, Place: fault.AfterStep, Count: 2 + rng.IntN(10)}
	o := fault.Order{Action: fault.Kill, Place: rarePlaces[rng.IntN(len(rarePlaces))], Count: 1}
	if rng.IntN(4) > 0 { // mostly after a step: replacements wait longer after each failure without one
		o.Place, o.Count = stepPlaces[rng.IntN(len(stepPlaces))], 2+rng.IntN(40)
	}
	return fmt.Sprint(o, " ", last)
}

// kills gives orders to the first n processes.
func kills(n int) func(*rand.Rand, int, uint32) string {
	return func(rng *rand.Rand, _ int, _ uint32) string {
		if n--; n < 0 {
			return ""
		}
		return randomKill(rng)
	}
}

// first gives orders to the first process of each rank.
func first(orders ...string) func(*rand.Rand, int, uint32) string {
	return func(_ *rand.Rand, rank int, generation uint32) string {
		if generation > 0 || rank < 0 || rank >= len(orders) {
			return ""
		}
		return orders[rank]
	}
}

// storm gives the same order to the first n processes of rank 0.
func storm(n uint32, order string) func(*rand.Rand, int, uint32) string {
	return func(_ *rand.Rand, rank int, generation uint32) string {
		if rank != 0 || generation >= n {
			return ""
		}
		return order
	}
}

// calmRun is a run that nothing disturbs.
func calmRun(t *testing.T, steps int, more ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "run")
	succeed(t, job(out, steps, append(more, strings.Fields("--ranks goroutine --spares 0 --restarts 0")...)...)...)
	return out
}

// numberIn returns the number in a variable of the environment, or a default.
func numberIn(t *testing.T, variable string, number int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return number
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s is %q: give a number", variable, text)
	}
	return n
}

// killsVariable is the variable with the number of kills of TestFaults' first row.
const killsVariable = "SPMOE_KILLS"

// Ranks that are processes end with the bits of ranks that are goroutines and that nothing
// disturbed, whatever becomes of them, and read no file of text. Kills are not the fault of the
// step in which they come, however many there are. Flips strike in steps, which are computed twice.
// Evaluations are not: the first one has the first messages.
func TestFaults(t *testing.T) {
	many := numberIn(t, killsVariable, 6)
	const (
		stages  = "--set model.layers=4 --batch 8 --micro-batch 1 --pp 2 --set pp_schedule=ZBVZeroBubble"
		sharers = "--tp 2 --seq 64"
		pairs   = "--set dp_replicate=2 --ep 2 --batch 8 --micro-batch 1 --recompute selective --precision mxfp8"
		replay  = "--set guard.replay=1 --eval-every 0"
		mxfp8   = "--precision mxfp8 --set ep_dispatch=mxfp8 --set ep_combine_backward=mxfp8"
		third   = "kill@trainer/step/inside#3"
	)
	calm := map[string]map[string]string{} // what a run ends with that nothing disturbs
	for _, c := range []struct {
		name   string
		steps  int
		model  string
		more   string
		orders func(rng *rand.Rand, rank int, generation uint32) string
		dead   int // processes
		alarms int // at least
	}{
		{"kills", 5 * max(many, 6), "", "", kills(many), many, 0},
		{"kills of stages", 20, stages, "", kills(2), 2, 0},
		{"kills of sharers", 20, sharers, "", kills(2), 2, 0},
		{"kills of replicas", 20, pairs, "", kills(2), 2, 0},
		{"all ranks, two spares", 20, "", "--spares 2", first(third, third, third, third), 4, 0},
		{"six kills in a step", 20, "", "--spares 0 --restarts 2", storm(6, "kill@trainer/step/before#1"), 6, 0},
		{"other ends", 20, "", "", first("exit0@ep/put/inside#70", "exit1@optim/update/inside#21", "panic@checkpoint/write#1", "loop@trainer/step/inside#5"), 4, 0},
		{"ends while healing", 20, "", "", first("kill@trainer/step/before#7", "exit0@spmd/park/before#1", "kill@trainer/back/inside#1"), 3, 0},
		{"ends when all ended", 20, "", "", first("", "kill@spmd/leave/before#1", "kill@spmd/leave/inside#1"), 2, 0},
		{"flipped bits", 20, replay, "", first("flip@trainer/step/weights#50", "flip@trainer/step/state#60", "flip@ep/put/message#400", "flip@trainer/step/gradient#90"), 3, 2},
		{"nan and a full disk", 20, "", "", first("nan@trainer/step/gradient#30", "full@checkpoint/write#1"), 0, 2},
		{"nothing, in MXFP8", 20, mxfp8, "--recompute full --spares 0 --bind-to core", first(), 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			kind := fmt.Sprint(c.steps, c.model)
			if calm[kind] == nil {
				calm[kind] = finished(t, calmRun(t, c.steps, strings.Fields(c.model)...), c.steps)
			}
			out, open := filepath.Join(t.TempDir(), "run"), openFiles(t)
			rng, given, said := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0)), []string{}, new(lockedBuffer)
			args, text := job(out, c.steps, strings.Fields(c.model+" "+c.more)...), filepath.Join(t.TempDir(), "text.go")
			args[slices.Index(args, ownText)] = text
			if err := os.Symlink(ownText, text); err != nil {
				t.Fatal(err)
			}
			code := launchTrain(t.Context(), args, func(rank int, generation uint32) string {
				os.Remove(text) // no rank reads it
				orders := c.orders(rng, rank, generation)
				given = append(given, fmt.Sprintf("%d: %s", rank, orders))
				return orders
			}, said, said)
			events, err := record.ReadEvents(out)
			dead, alarms := 0, strings.Count(said.String(), `"event":"alarm"`)
			for _, e := range events {
				if e.Kind == spmd.Detected || e.Kind == spmd.SpareLost {
					dead++
				}
			}
			if code != cli.ExitOK || err != nil || dead != c.dead || alarms < c.alarms || alarms > 0 && c.alarms == 0 {
				t.Errorf("exit code %d, %d processes died, want %d, %d alarms, want %d (%v)", code, dead, c.dead, alarms, c.alarms, err)
			}
			same(t, finished(t, out, c.steps), calm[kind])
			if left := childrenOf(os.Getpid()); len(left) > 0 {
				t.Errorf("processes %d are left", left)
			}
			if now := openFiles(t); now > open {
				t.Errorf("%d files are open, %d before", now, open)
			}
			if t.Failed() {
				t.Logf("orders by ranks: %q\nevents: %+v\n%s", given, events, said)
			}
		})
	}
}

// A killed launcher leaves no process, and the same command goes on from the checkpoint before a
// damaged one.
func TestKilledLauncher(t *testing.T) {
	t.Parallel()
	const steps = 40
	calm, out := calmRun(t, steps), filepath.Join(t.TempDir(), "run")
	p := prepare(t, "", job(out, steps)...).begin(t)
	await(t, "a second checkpoint", func() bool {
		_, err := os.Stat(filepath.Join(out, "step-00000020"))
		return err == nil
	})
	ranks := childrenOf(p.Process.Pid)
	p.Process.Kill()
	p.end()
	await(t, "an end of all ranks", func() bool { return !slices.ContainsFunc(ranks, processAlive) })
	newest, err := checkpoint.Latest(out)
	if err != nil {
		t.Fatal(err)
	}
	breakShard(t, filepath.Join(newest, "rank-00002-of-00004.safetensors"))
	if got := launch(job(out, steps)...); got.code != cli.ExitOK || !strings.Contains(got.out+got.errOut, "damaged") {
		t.Fatalf("exit code %d: %s%s", got.code, got.out, got.errOut)
	}
	same(t, finished(t, out, steps), finished(t, calm, steps))
}

// finished returns the files of a run that faults must not change, without earlier checkpoints,
// which a rank may have failed to save, and files that contain the command line.
func finished(t *testing.T, out string, steps int) map[string]string {
	t.Helper()
	all, last := files(t, out), fmt.Sprintf("step-%08d", steps)
	maps.DeleteFunc(all, func(name, _ string) bool {
		folder, _, _ := strings.Cut(name, "/")
		base := filepath.Base(name)
		return base == record.EventsFile || base == "config.toml" || base == "manifest.json" || strings.HasPrefix(folder, "step-") && folder != last
	})
	return all
}

func openFiles(t *testing.T) int {
	t.Helper()
	mapped, err := os.ReadFile("/proc/self/maps")
	if err != nil || bytes.Contains(mapped, []byte("spmoe-heap")) {
		t.Errorf("the heap of a run is still mapped (%v)", err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}
