// Mpi compares the engine's token exchange, all-reduce and barrier with the same over MPI. The
// program in src does over MPI what a MoE layer does. This program builds it with each available
// MPI, builds the launcher, and runs all of them in turns, so that a busy neighbor or a changing
// clock affects all of them. It prints the medians. Only this program needs MPI.
//
//	make -C bench/peers/mpi exchange
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"spmoe/tensor/cpu"
)

func main() {
	rounds := flag.Int("rounds", 5, "runs of each side in turns; the median counts")
	np := flag.String("np", "2,4,8", "`LIST` of numbers of ranks")
	quick := flag.Bool("quick", false, "fewer shapes, a smaller all-reduce and fewer repetitions in a run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *rounds, *np, *quick); err != nil {
		fmt.Fprintf(os.Stderr, "mpi: %v\n", err)
		os.Exit(1)
	}
}

// extent says how much a run measures.
type extent struct {
	groups  []string // of the engine's benchmark; the program's operations have the same names
	repeats int      // the same number as in the engine's benchmark
	quick   bool
}

func extentOf(quick bool) extent {
	if quick {
		return extent{[]string{"barrier", "all_reduce_16MiB", "exchange_4096x2048_top8"}, 7, true}
	}
	return extent{[]string{"barrier", "all_reduce_64MiB", "exchange_4096x2048_top8", "exchange_4096x2048_top2", "exchange_128x7168_top8"}, 15, false}
}

func run(ctx context.Context, out io.Writer, rounds int, np string, quick bool) (err error) {
	if rounds < 1 {
		return fmt.Errorf("-rounds is %d: give 1 or more", rounds)
	}
	sizes, err := parseSizes(np)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "mpi")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	sides, err := build(ctx, out, folder)
	if err != nil {
		return err
	}
	extent := extentOf(quick)
	describe(out, rounds)
	for _, n := range sizes {
		t := table{}
		for round := range rounds {
			for i := range sides {
				s := sides[(i+round)%len(sides)] // no side always follows the same neighbor
				results, err := s.measure(ctx, n, extent)
				if err != nil {
					return fmt.Errorf("%s, %d ranks: %w", s.name, n, err)
				}
				if err := t.add(s, results); err != nil {
					return fmt.Errorf("%s, %d ranks: %w", s.name, n, err)
				}
			}
		}
		t.print(out, n)
	}
	return nil
}

// parseSizes parses comma-separated numbers of ranks.
func parseSizes(text string) (sizes []int, err error) {
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-np is %q: give whole numbers, 1 or more, with commas between them", text)
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}

// describe prints what is measured and on what.
func describe(out io.Writer, rounds int) {
	fmt.Fprintf(out, "%d cores of %s; us on the slowest rank, medians of %d runs in turns, each the median of its repetitions\n", runtime.NumCPU(), cpu.Model(), rounds)
	fmt.Fprintf(out, "goroutines, processes: the engine's one-sided exchange between ranks of either kind\n")
	fmt.Fprintf(out, "dedup: over MPI a token travels once to each rank, and the sums of a rank are rounded before they travel back\n")
	fmt.Fprintf(out, "/gor, /proc: Open MPI's time over the engine's, run by run; d/gor, d/proc: its dedup time over the engine's\n")
}
