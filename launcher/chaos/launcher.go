//go:build linux

package chaos

// The test of a launcher that dies. Its ranks must die with it, and the same command must resume
// from the last checkpoint.

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"spmoe/launcher/checkpoint"
)

// launchers kills launchers at random times.
func (s *session) launchers(ctx context.Context) error {
	return s.resumed(ctx, func(int) damage { return damage{name: "launcher"} })
}

// damagedFiles kills launchers of runs that have two checkpoints, and damages the newest. The same
// command must resume from the one before.
func (s *session) damagedFiles(ctx context.Context) error {
	return s.resumed(ctx, func(i int) damage { return damages()[i%len(damages())] })
}

func (s *session) resumed(ctx context.Context, damageOf func(i int) damage) error {
	const steps = shortRun
	usual, want, err := s.reference(ctx, steps)
	if err != nil {
		return err
	}
	for i := 0; i < s.Count && err == nil; i++ {
		d, set := damageOf(i), *want
		a := &attack{Kind: d.name, Rank: -1}
		out := filepath.Join(s.folder, fmt.Sprintf("launcher-%d", i+1))
		wait := func() { time.Sleep(time.Duration(s.rng.Int64N(int64(usual.took)))) }
		if d.apply != nil {
			set.aside = 1
			wait = func() { waitForFile(ctx, filepath.Join(out, fmt.Sprintf("step-%08d", 2*saveEvery))) }
		}
		err = s.killLauncher(a, out, steps, wait)
		if err == nil && d.apply != nil {
			err = s.damageNewest(d, out)
		}
		if err == nil {
			err = cmp.Or(ctx.Err(), s.resume(a, out, steps, &set))
		}
	}
	return err
}

// killLauncher starts a run, and kills its launcher when wait returns.
func (s *session) killLauncher(a *attack, out string, steps int, wait func()) error {
	s.attacks = append(s.attacks, a)
	var said bytes.Buffer
	cmd := s.Program(s.command(out, steps))
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return err
	}
	wait()
	family := children(cmd.Process.Pid)
	a.began = time.Now()
	if err := cmd.Process.Kill(); err != nil {
		return err
	}
	cmd.Process.Wait() // cmd.Wait would wait until no rank has the output open
	a.Made = true
	for _, pid := range family {
		for syscall.Kill(pid, 0) == nil && !hasEnded(pid) {
			if time.Since(a.began) > time.Second {
				s.problem("%s: process %d is still running a second after its launcher's death", out, pid)
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	a.Resumed = time.Since(a.began) // when the last of its ranks was gone
	return nil
}

// resume repeats the command of a run with a killed launcher, and checks the outcome.
func (s *session) resume(a *attack, out string, steps int, want *outcome) error {
	_, none := checkpoint.Latest(out)
	text, err := s.Program(s.command(out, steps)).CombinedOutput()
	a.Redone = time.Since(a.began)
	if err != nil {
		s.problem("%s of %s: resuming: %v: %s", a.Kind, out, err, text)
		return nil
	}
	has, err := outcomeOf(out, steps)
	if err != nil {
		s.problem("%s of %s: %v", a.Kind, out, err)
		return nil
	}
	if none == nil { // the run locks the checkpoint that it resumes from
		has.others = min(has.others, want.others)
	}
	problems := has.differences(want)
	for _, d := range problems {
		s.problem("%s of %s: %s", a.Kind, out, d)
	}
	if len(problems) > 0 {
		return nil
	}
	return os.RemoveAll(out)
}

// children lists the child processes of a process.
func children(pid int) (all []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, field := range strings.Fields(string(text)) {
			var child int
			if _, err := fmt.Sscan(field, &child); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// hasEnded reports whether a process has ended, even if its parent has not collected it yet.
func hasEnded(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z")
}
