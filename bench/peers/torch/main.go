// Torch compares training steps with those of PyTorch, of the same models with the same threads, in
// turns.
//
//	go run ./bench/peers/torch --rows all --threads 2
//	go run ./bench/peers/torch -- --flavor debug --model.vocab 1024 --seq 256
//
// It needs a Python with torch (Debian: python3-torch), or another one given by --python. The
// launcher tells PyTorch's side the shape of the model. PyTorch's variants (types of weights,
// attention, products of experts, optimizer, compilation) are tried first, and the fastest counts.
//
// Built with CGO_ENABLED=0, it needs nothing else on another machine than a static launcher:
//
//	torch --launcher ./launcher --python python3 --rows all --threads 16 --np 8
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

// contest says what to run, and how often.
type contest struct {
	rows                     []row
	precision, set           string
	python, script, launcher string
	threads, ranks, rounds   int
	warm, steps              int
	fast                     bool
	out                      io.Writer
}

func main() {
	c, list := contest{out: os.Stdout}, ""
	flag.StringVar(&list, "rows", "small", "`LIST` of models: all, or some of "+rowNames()+"; flags of bench train after -- give another one")
	flag.StringVar(&c.precision, "precision", "bf16", "`NAME` of this engine's precision")
	flag.IntVar(&c.threads, "threads", 2, "`N` threads of PyTorch, and of this engine's ranks together")
	flag.IntVar(&c.ranks, "np", 0, "`N` ranks of this engine, which share the threads; 0: one per thread")
	flag.IntVar(&c.rounds, "rounds", 3, "`N` turns of each")
	flag.IntVar(&c.warm, "warm", 1, "`N` steps of PyTorch before those that count, in each turn")
	flag.IntVar(&c.steps, "steps", 2, "`N` steps of PyTorch in each turn, of which the median counts")
	flag.StringVar(&c.python, "python", "python3", "`PROGRAM` that has torch (Debian: /usr/bin/python3 with python3-torch and libopenblas0-pthread)")
	flag.StringVar(&c.launcher, "launcher", "", "`PROGRAM` to compare with; empty: built from this folder's source")
	flag.StringVar(&c.set, "set", "", "`NAME=VALUE,...` options of PyTorch's side that are not searched, such as weights=autocast")
	flag.BoolVar(&c.fast, "no-search", false, "take the defaults of options that --set does not give")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := c.main(ctx, list, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "torch:", err)
		os.Exit(1)
	}
}

// main prepares both sides in a temporary folder and runs the rows.
func (c *contest) main(ctx context.Context, list string, args []string) (err error) {
	if err := c.check(list, args); err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "torch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if c.script, err = unpack(folder); err != nil {
		return err
	}
	if c.launcher == "" {
		if c.launcher, err = build(ctx, folder); err != nil {
			return err
		}
	}
	return c.run(ctx)
}

// check resolves the rows and the number of ranks.
func (c *contest) check(list string, args []string) (err error) {
	if len(args) > 0 {
		one, err := parseRow(args)
		if err != nil {
			return err
		}
		c.rows = []row{one}
	} else if c.rows, err = selectRows(list); err != nil {
		return err
	}
	if c.ranks == 0 {
		c.ranks = c.threads
	}
	if c.threads < 1 || c.rounds < 1 || c.steps < 1 || c.warm < 0 || c.ranks < 1 || c.threads%c.ranks != 0 {
		return errors.New("--threads, --rounds and --steps are 1 or more, and --np divides the threads")
	}
	return nil
}
