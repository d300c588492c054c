package trainer

// The attack on memory, on ranks that are processes.

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/state"
)

// struck runs a rank of a test that is a process, with a strike. It prints the kind of memory that
// was hit, and when steps ended.
func struck(member *spmd.Member, job *Job, s strike) error {
	job.report = printedSteps{printed{&reports{}}}
	if !member.Late() {
		job.corrupt = s.hook(func(kind string) { fmt.Println("HIT:", kind) })
	}
	return job.Run(context.Background(), member)
}

// printedSteps is a Reporter that also prints when steps ended.
type printedSteps struct{ printed }

func (printedSteps) Step(s events.Step) { fmt.Println("STEP:", time.Now().UnixNano()) }

// attackProcesses is an [attackRun] of rank processes.
func attackProcesses(t *testing.T, cfg config.Config, s *strike) (sum uint64, took time.Duration, kind string, alarms []string, err error) {
	cfg.LogEvery = 1
	cfg.Out = filepath.Join(t.TempDir(), "run")
	defer os.RemoveAll(cfg.Out)
	if s == nil {
		s = &strike{Step: cfg.Steps + 1} // which never begins
	}
	out, _, err := processes(t, injury{Config: cfg, Strike: s})
	var ended []int64
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if text, ok := strings.CutPrefix(line, "ALARM: "); ok && !strings.Contains(text, " is slow: ") {
			alarms = append(alarms, text)
		} else if text, ok := strings.CutPrefix(line, "HIT: "); ok {
			kind = text
		} else if text, ok := strings.CutPrefix(line, "STEP: "); ok {
			var at int64
			fmt.Sscan(text, &at)
			ended = append(ended, at)
		}
	}
	if len(ended) > 1 {
		took = time.Duration(ended[len(ended)-1] - ended[len(ended)-2])
	}
	if err == nil {
		sum = checkpointSum(t, cfg)
	}
	return sum, took, kind, alarms, err
}

// checkpointSum returns a checksum of the last checkpoint.
func checkpointSum(t *testing.T, cfg config.Config) (sum uint64) {
	_, tensors := savedProgress(t, cfg, cfg.Steps)
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		for _, x := range tensors[name] {
			sum = sum*state.SumPrime ^ uint64(math.Float32bits(x))
		}
	}
	return sum
}

// TestAttackProcesses attacks rank processes.
func TestAttackProcesses(t *testing.T) { attack(t, attackedRanks, attackProcesses) }

// Rank processes: no checkpoint verifies and is wrong.
func TestAttackSavesProcesses(t *testing.T) {
	attackSaves(t, saveFlips(6), func(t *testing.T, cfg config.Config, f *saveFlip) (alarms []string, err error) {
		if f == nil {
			f = &saveFlip{} // which has no stage
		}
		out, _, err := processes(t, injury{Config: cfg, Save: f})
		for line := range strings.Lines(out) {
			if text, ok := strings.CutPrefix(line, "ALARM: "); ok && !strings.Contains(text, " is slow: ") {
				alarms = append(alarms, strings.TrimSpace(text))
			}
		}
		return alarms, err
	})
}
