//go:build linux

// Package chaos trains a small model while its ranks fail, and compares the outcome with an
// undisturbed run: the loss of every step, the bits of the last checkpoint, and everything that is
// left on the machine.
package chaos

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"spmoe/launcher/report"
	"spmoe/launcher/spmd"
)

// Hooks let this package inject faults into a launcher under test and observe its events.
type Hooks struct {
	Fault func(rank int, generation uint32) string // see [spmd.Processes]
	Event func(spmd.Event)
}

// Config describes a test.
type Config struct {
	Ranks  int
	Spares int
	Seed   uint64        // of the choice of faults
	Count  int           // of faults, or of runs
	Every  time.Duration // between faults of a mix
	For    time.Duration // duration of a mix, or of a quiet run
	Action string        // of faults at points, such as "kill"
	At     string        // substring of the names of the points
	Model  []string      // flags of the job's model, in addition to layers and dimension

	References References // of earlier tests, to which this test adds its own; may be nil

	// Launch runs a command line in this process and returns its exit code.
	Launch func(ctx context.Context, args []string, hooks Hooks, out, errOut io.Writer) int
	// Program returns the launcher as a process of its own, with a command line.
	Program func(args []string) *exec.Cmd

	Out io.Writer
}

// session is a test under way.
type session struct {
	Config
	rng      *rand.Rand
	folder   string   // of all files of the test
	data     string   // folder of the training text
	more     []string // appended to the job's command line
	runs     int
	files    int // file descriptors of this process after its first run
	attacks  []*attack
	problems []string
	usual    time.Duration // duration of undisturbed runs of the same length
	took     time.Duration // duration of the disturbed runs
}

// Mode is a test.
type Mode struct {
	Name, About string
	Count       int      // of faults, unless Config has a number
	Flags       []string // of the command line, in addition to those of all modes
	test        func(*session, context.Context) error
}

// Modes returns all tests. The first one injects faults of all kinds.
func Modes() []Mode {
	count := []string{"count"}
	return []Mode{
		{"mix", "", 0, []string{"every", "for"}, (*session).mix},
		{"points", "make each rank fail at each fault point of the code, in a short run each", 0,
			[]string{"count", "action", "at"}, (*session).points},
		{"kill", "kill rank processes", 200, count, repeated("kill")},
		{"stop", "stop rank processes and continue them later", 20, count, repeated("stop")},
		{"bits", "flip single bits in memory while every step is computed twice", 100, count, (*session).bits},
		{"launcher", "kill the launcher and continue with the same command", 25, count, (*session).launchers},
		{"files", "damage the newest checkpoint and continue from the one before", 24, count, (*session).damagedFiles},
		{"quiet", "overload the processors without injecting faults, and count false alarms", 0, []string{"for"}, (*session).quiet},
	}
}

// Run runs a test. It returns false if something did not go as required, and has printed what. It
// returns an error if the test could not be run.
func (c Config) Run(ctx context.Context, mode Mode) (ok bool, err error) {
	if c.Count == 0 {
		c.Count = mode.Count
	}
	s := &session{Config: c, rng: rand.New(rand.NewPCG(c.Seed, 0))}
	if s.folder, err = os.MkdirTemp("", "chaos-"); err != nil {
		return false, err
	}
	if s.data, err = writeData(filepath.Join(s.folder, "data")); err != nil {
		return false, err
	}
	s.say("%s: seed %d, %s, %s", mode.Name, s.Seed, report.Plural(s.Ranks, "rank"), report.Plural(s.Spares, "spare"))
	if err := mode.test(s, ctx); err != nil {
		return false, fmt.Errorf("%w (its files are in %s)", err, s.folder)
	}
	s.report(mode.Name)
	if len(s.problems) > 0 {
		s.say("its files are in %s", s.folder)
		return false, nil
	}
	return true, os.RemoveAll(s.folder)
}

func (s *session) say(format string, args ...any) { fmt.Fprintf(s.Out, format+"\n", args...) }

// problem records and prints a violated requirement.
func (s *session) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.problems = append(s.problems, text)
	s.say("PROBLEM: %s", text)
}

// report prints the outcome of all faults.
func (s *session) report(mode string) {
	table := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', 0)
	byKind := map[string][]*attack{}
	for _, a := range s.attacks {
		byKind[a.Kind] = append(byKind[a.Kind], a)
	}
	if len(byKind) > 0 {
		fmt.Fprintln(table, "fault\tmade\tdetected p50\tp99\tmax\tresumed p50\tp99\tmax\tredone p50\tp99\tmax")
	}
	vanished := 0
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		var times [3][]time.Duration
		made := 0
		for _, a := range byKind[kind] {
			if a.Made {
				made++
			}
			if a.Made && a.vanishes && a.Detected == 0 {
				vanished++
			}
			for i, d := range []time.Duration{a.Detected, a.Resumed, a.Redone} {
				if d > 0 {
					times[i] = append(times[i], d.Round(10*time.Microsecond))
				}
			}
		}
		fmt.Fprintf(table, "%s\t%d of %d%s%s%s\n", kind, made, len(byKind[kind]), quantiles(times[0]), quantiles(times[1]), quantiles(times[2]))
	}
	table.Flush()
	if vanished > 0 {
		s.say("%d were not detected and changed no result: a sum rounded them away", vanished)
	}
	if s.took > 0 {
		s.say("goodput: %.1f %% (undisturbed %v, disturbed %v)", 100*s.usual.Seconds()/s.took.Seconds(),
			s.usual.Round(time.Millisecond), s.took.Round(time.Millisecond))
	}
	verdict := "all faults handled"
	if len(s.problems) > 0 {
		verdict = report.Plural(len(s.problems), "problem")
	}
	s.say("%s: seed %d, %s, %s: %s", mode, s.Seed, report.Plural(s.runs, "run"), report.Plural(len(s.attacks), "fault"), verdict)
}

// quantiles returns cells with the median, the 99th percentile and the largest of some times.
func quantiles(times []time.Duration) string {
	n := len(times)
	if n == 0 {
		return "\t-\t-\t-"
	}
	slices.Sort(times)
	return fmt.Sprintf("\t%v\t%v\t%v", times[(n-1)/2], times[(99*n+99)/100-1], times[n-1])
}
