//go:build linux

// Package chaos trains a small model while its ranks fail, and holds what comes of it against a run
// that nothing has disturbed: the loss of every step, the bits of the last checkpoint, and what is
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

	"spmoe/launcher/spmd"
)

// Hooks are what a launcher under test lets this package see and do.
type Hooks struct {
	Fault func(rank int, generation uint32) string // see [spmd.Processes]
	Event func(spmd.Event)
}

// Config says what is tested.
type Config struct {
	Ranks  int
	Spares int
	Seed   uint64        // of the choice of faults
	Count  int           // of faults, or of runs
	Every  time.Duration // between faults of a mix
	For    time.Duration // that a mix, or a quiet run, lasts
	Action string        // of faults at points, such as "kill"
	At     string        // part of the names of the points
	Model  []string      // flags of the job's model, besides its layers and dimension

	// Launch runs a command line in this process and returns its exit code.
	Launch func(ctx context.Context, args []string, hooks Hooks, out, errOut io.Writer) int
	// Program is the launcher as a process of its own, with a command line.
	Program func(args []string) *exec.Cmd

	Out  io.Writer // for people
	JSON io.Writer // for programs: one object a line for every fault, and one at the end; may be nil
}

// session is a test under way.
type session struct {
	Config
	rng      *rand.Rand
	folder   string   // of all that it writes
	data     string   // that is trained on
	more     []string // at the end of the job's command line
	runs     int
	files    int // descriptors that this process had open after its first run
	attacks  []*attack
	problems []string
	usual    time.Duration // that undisturbed runs would have taken
	took     time.Duration // that the disturbed ones have
}

// tests are the tests by their names.
func tests() map[string]func(*session, context.Context) error {
	return map[string]func(*session, context.Context) error{
		"mix": (*session).mix, "points": (*session).points, "kill": (*session).kills, "stop": (*session).stops,
		"short": (*session).shorts, "launcher": (*session).launchers, "quiet": (*session).quiet, "bits": (*session).bits, "files": (*session).damaged,
	}
}

// Modes are the names of the tests that [Config.Run] knows.
func Modes() []string { return slices.Sorted(maps.Keys(tests())) }

// Run makes one of the tests. ok says that everything went as it must; what did not has been
// printed. An error says that the test could not be made.
func (c Config) Run(ctx context.Context, mode string) (ok bool, err error) {
	test := tests()[mode]
	if test == nil {
		return false, fmt.Errorf("there is no test %q", mode)
	}
	s := &session{Config: c, rng: rand.New(rand.NewPCG(c.Seed, 0))}
	if s.folder, err = os.MkdirTemp("", "chaos-"); err != nil {
		return false, err
	}
	if s.data, err = writeData(filepath.Join(s.folder, "data")); err != nil {
		return false, err
	}
	s.say("%s: seed %d, %d ranks, %d spares", mode, s.Seed, s.Ranks, s.Spares)
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

// problem notes that something is not as it must be.
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
