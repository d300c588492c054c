// Torch compares training steps with PyTorch's, for the same model with the same threads, in turns.
//
//	go run ./bench/peers/torch --flavor small --threads 2
//
// It needs a Python with torch (Debian: python3-torch), or another one given by --python.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"

	"spmoe/bench"
)

// contest says what to run, and how often.
type contest struct {
	flavor, precision        string
	python, script, launcher string
	threads, ranks, rounds   int
	compile                  bool
}

func main() {
	var c contest
	flag.StringVar(&c.flavor, "flavor", "small", "`NAME` of the model: debug or small")
	flag.StringVar(&c.precision, "precision", "bf16", "`NAME` of this engine's precision")
	flag.IntVar(&c.threads, "threads", 2, "`N` threads of PyTorch, and of this engine's ranks together")
	flag.IntVar(&c.ranks, "np", 0, "`N` ranks of this engine, which share the threads; 0: one a thread")
	flag.IntVar(&c.rounds, "rounds", 3, "`N` turns of each")
	flag.StringVar(&c.python, "python", "python3", "`PROGRAM` that has torch")
	flag.StringVar(&c.script, "script", "bench/peers/torch/train.py", "`FILE` that it runs")
	flag.StringVar(&c.launcher, "launcher", "", "`PROGRAM` to hold against it; empty: built from this folder's source")
	flag.BoolVar(&c.compile, "compile", false, "let PyTorch compile its model")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := c.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "torch:", err)
		os.Exit(1)
	}
}

func (c *contest) run(ctx context.Context) error {
	if c.ranks == 0 {
		c.ranks = c.threads
	}
	if c.threads < 1 || c.rounds < 1 || c.ranks < 1 || c.threads%c.ranks != 0 {
		return errors.New("--threads and --rounds are 1 or more, and --np divides the threads")
	}
	if c.launcher == "" {
		folder, err := os.MkdirTemp("", "torch-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(folder)
		c.launcher = filepath.Join(folder, "launcher")
		build := exec.CommandContext(ctx, "go", "build", "-o", c.launcher, "./launcher")
		if said, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building the launcher: %w: %s", err, said)
		}
	}
	threads := strconv.Itoa(c.threads)
	peer := []string{c.script, "--flavor", c.flavor, "--threads", threads}
	if c.compile {
		peer = append(peer, "--compile")
	}
	own := []string{"-np", strconv.Itoa(c.ranks), "--threads", strconv.Itoa(c.threads / c.ranks), "bench", "train", "--quick", "--flavor", c.flavor, "--precision", c.precision, "--json", "-"}
	var ours, theirs, rates, memory []float64
	for range c.rounds {
		a, err := figures(ctx, c.launcher, own...)
		if err != nil {
			return err
		}
		b, err := figures(ctx, c.python, peer...)
		if err != nil {
			return err
		}
		x, y := a[c.precision+"_tokens_per_s"], b["torch_bf16_tokens_per_s"]
		fmt.Printf("%s, %d threads, %d ranks: this engine in %s %.0f tokens/s, PyTorch in bf16 %.0f: %.2f times as fast\n", c.flavor, c.threads, c.ranks, c.precision, x, y, x/y)
		ours, theirs, rates = append(ours, x), append(theirs, y), append(rates, x/y)
		memory = append(memory, a[c.precision+"_memory_bytes"]/b["torch_bf16_memory_bytes"])
	}
	fmt.Printf("medians: %.0f and %.0f tokens/s; %.2f times as fast, in %.2f times the memory\n", bench.Median(ours), bench.Median(theirs), bench.Median(rates), bench.Median(memory))
	return nil
}

// figures runs a program, and returns the values in its output by name.
func figures(ctx context.Context, program string, args ...string) (map[string]float64, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", program, err, errOut.String())
	}
	values := map[string]float64{}
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		var line struct {
			Name  string
			Value float64
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("%s printed %q: %w", program, lines.Text(), err)
		}
		values[line.Name] = line.Value
	}
	if len(values) == 0 {
		return nil, fmt.Errorf("%s printed no figures: %s", program, errOut.String())
	}
	return values, nil
}
