//go:build linux

package chaos

// The job under test. Its model is so small that a step takes some milliseconds, and it does
// everything that a run does: evaluations, records, checkpoints.

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	saveEvery   = 10
	evalEvery   = 15
	recordEvery = 10
	shortRun    = 3*saveEvery + saveEvery/2 // of a run with one fault
)

// command returns the command line of a job with a number of steps.
func (s *session) command(out string, steps int) []string {
	n := fmt.Sprint(s.Ranks)
	return slices.Concat([]string{
		"train", "-np", n, "--ranks", "process", "--spares", fmt.Sprint(s.Spares), "--restarts", "100", "--timeout", "20s",
		"--model.layers", "2", "--model.dim", "32", "--seq", "32", "--batch", n, "--eval-sequences", n, "--sample-tokens", "4",
		"--steps", fmt.Sprint(steps), "--save-every", fmt.Sprint(saveEvery), "--eval-every", fmt.Sprint(evalEvery),
		"--record-every", fmt.Sprint(recordEvery), "--report=false", "--log-format", "json", "--log-every", "1", "--data", s.data, "--out", out,
	}, s.Model, s.more)
}

// writeData writes a small corpus, always the same.
func writeData(folder string) (string, error) {
	if err := os.Mkdir(folder, 0o777); err != nil {
		return "", err
	}
	words := strings.Fields("a rank that waits for another spins and then parks until the bell rings of what was stored before it")
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 8 {
		var text strings.Builder
		for text.Len() < 8<<10 {
			text.WriteString(words[rng.IntN(len(words))] + " ")
		}
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%d.txt", i)), []byte(text.String()), 0o666); err != nil {
			return "", err
		}
	}
	return folder, nil
}
