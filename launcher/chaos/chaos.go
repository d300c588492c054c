//go:build linux

// Package chaos trains a small model while its ranks fail, and compares the outcome with an
// undisturbed run: the loss of every step, the bits of the last checkpoint, and everything that is
// left on the machine.
package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

	// Launch runs a command line in this process and returns its exit code.
	Launch func(ctx context.Context, args []string, hooks Hooks, out, errOut io.Writer) int
	// Program returns the launcher as a process of its own, with a command line.
	Program func(args []string) *exec.Cmd

	Out  io.Writer // for people
	JSON io.Writer // for programs: one object per fault, and one at the end; may be nil
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

// tests maps names to tests.
func tests() map[string]func(*session, context.Context) error {
	return map[string]func(*session, context.Context) error{
		"mix": (*session).mix, "points": (*session).points, "kill": (*session).kills, "stop": (*session).stops,
		"short": (*session).shorts, "launcher": (*session).launchers, "quiet": (*session).quiet, "bits": (*session).bits, "files": (*session).damagedFiles,
	}
}

// Modes returns the names of the tests that [Config.Run] knows.
func Modes() []string { return slices.Sorted(maps.Keys(tests())) }

// Run runs one of the tests. It returns false if something did not go as required, and has printed
// what. It returns an error if the test could not be run.
func (c Config) Run(ctx context.Context, mode string) (ok bool, err error) {
	test := tests()[mode]
	if test == nil {
		return false, fmt.Errorf("unknown test %q: use one of %q", mode, Modes())
	}
	s := &session{Config: c, rng: rand.New(rand.NewPCG(c.Seed, 0))}
	if s.folder, err = os.MkdirTemp("", "chaos-"); err != nil {
		return false, err
	}
	if s.data, err = writeData(filepath.Join(s.folder, "data")); err != nil {
		return false, err
	}
	s.say("%s: seed %d, %s, %s", mode, s.Seed, report.Plural(s.Ranks, "rank"), report.Plural(s.Spares, "spare"))
	if err := test(s, ctx); err != nil {
		return false, fmt.Errorf("%w (its files are in %s)", err, s.folder)
	}
	s.report(mode)
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

// line writes an object for programs.
func (s *session) line(object any) {
	if s.JSON == nil {
		return
	}
	text, err := json.Marshal(object)
	if err == nil {
		_, err = s.JSON.Write(append(text, '\n'))
	}
	if err != nil {
		s.problem("writing results: %v", err)
	}
}
