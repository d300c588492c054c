//go:build linux

package chaos

// The test of a launcher that dies: its ranks die with it, and the same command goes on from the last checkpoint.

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"spmoe/launcher/checkpoint"
)

func (s *session) launchers(ctx context.Context) error {
	const steps = 60
	usual, want, err := s.reference(ctx, steps)
	if err != nil {
		return err
	}
	for i := range s.Count {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		wait := time.Duration(s.rng.Int64N(int64(usual.took)))
		if err := s.killLauncher(fmt.Sprintf("launcher-%d", i+1), steps, wait, want); err != nil {
			return err
		}
	}
	return nil
}

// killLauncher kills the launcher of a run after some time, and lets another one go on.
func (s *session) killLauncher(name string, steps int, wait time.Duration, want *outcome) error {
	a := &attack{Kind: "launcher", Rank: -1}
	s.attacks = append(s.attacks, a)
	out := filepath.Join(s.folder, name)
	var said bytes.Buffer
	cmd := s.Program(s.command(out, steps))
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return err
	}
	time.Sleep(wait)
	family := children(cmd.Process.Pid)
	begin := time.Now()
	if err := cmd.Process.Kill(); err != nil {
		return err
	}
	cmd.Process.Wait() // not cmd.Wait, which lasts until no rank has the output open
	a.Made = true
	for _, pid := range family {
		for syscall.Kill(pid, 0) == nil && !gone(pid) {
			if time.Since(begin) > time.Second {
				s.problem("%s: process %d has outlived its launcher by a second", name, pid)
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	a.Goes = time.Since(begin) // when the last of its ranks was gone
	more, resumed := []string{}, false
	if _, err := checkpoint.Latest(out); err == nil {
		more, resumed = append(more, "--resume"), true
	}
	again := s.Program(s.command(out, steps, more...))
	text, err := again.CombinedOutput()
	a.Done = time.Since(begin)
	s.line(a)
	if err != nil {
		s.problem("%s, killed after %v: going on: %v: %s", name, wait, err, text)
		return nil
	}
	has, err := outcomeOf(out, steps)
	if err != nil {
		s.problem("%s, killed after %v: %v", name, wait, err)
		return nil
	}
	if resumed { // the run holds on to the checkpoint that it goes on from
		has.others = min(has.others, want.others)
	}
	problems := has.differences(want)
	for _, d := range problems {
		s.problem("%s, killed after %v: %s", name, wait, d)
	}
	if len(problems) > 0 {
		return nil
	}
	return os.RemoveAll(out)
}

// children lists the processes that a process has started.
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

// gone says whether a process has ended, though it may wait for a parent to take notice.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z")
}
