// Peers compares the engine's matrix products with those of other libraries, on one core. Each
// library has a program in src, which this one builds and starts. This program then requests short
// measurements from each, in turns with the engine's kernels and the core's peak, so that a busy
// neighbor or a changing clock affects all of them. Only this program needs the libraries.
//
//	make -C bench/peers
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"spmoe/bench"
	"spmoe/tensor/cpu"
)

func main() {
	rounds := flag.Int("rounds", 9, "measurements of each side; the median counts")
	sample := flag.Duration("sample", 60*time.Millisecond, "length of a measurement")
	match := flag.String("match", "", "`REGEXP`: only products that have a match in \"format shape\"")
	flag.Parse()
	if err := run(os.Stdout, *rounds, *sample, *match); err != nil {
		fmt.Fprintf(os.Stderr, "peers: %v\n", err)
		os.Exit(1)
	}
}

func run(out io.Writer, rounds int, sample time.Duration, match string) error {
	if rounds < 1 {
		return fmt.Errorf("-rounds is %d: give 1 or more", rounds)
	}
	wanted, err := regexp.Compile(match)
	if err != nil {
		return fmt.Errorf("-match: %w", err)
	}
	peers, err := start(out)
	defer func() {
		for _, p := range peers {
			p.stop()
		}
	}()
	if err != nil {
		return err
	}
	contest := bench.NewPeerBenchmark()
	defer contest.Close()
	describe(out, rounds)
	table{out}.head()
	for _, p := range bench.Products() {
		if !wanted.MatchString(p.Format + " " + shape(p)) {
			continue
		}
		row, err := compete(contest, peers, p, rounds, sample)
		if err != nil {
			return fmt.Errorf("%s %s: %w", p.Format, shape(p), err)
		}
		table{out}.row(row)
	}
	return nil
}

// describe prints what is measured and on what.
func describe(out io.Writer, rounds int) {
	fmt.Fprintf(out, "one core of %s, tier %s; GFLOP/s and share of the core's peak, medians of %d rounds in turns\n", cpu.Model(), cpu.Best(), rounds)
	fmt.Fprintf(out, "the weights of oneDNN and libxsmm are packed beforehand; ours and OpenBLAS pack in every call\n")
	fmt.Fprintf(out, "mxint8 of the engine has block scales, which oneDNN's int8 has not\n")
	fmt.Fprintf(out, "* weights from memory; /best: the engine's rate over that of the best peer, in turns\n\n")
}

// shape formats MxNxK, or GxMxNxK for several groups, and marks streamed weights.
func shape(p bench.Product) string {
	text := fmt.Sprintf("%dx%dx%d", p.M, p.N, p.K)
	if p.Groups > 1 {
		return fmt.Sprintf("%dx%s*", p.Groups, text)
	}
	if p.Streamed {
		return text + "*"
	}
	return text
}

// contender is one side of a comparison: its rates and its shares of the peak.
type contender struct {
	rate, share float64
	overBest    float64 // of the engine's: rate over that of the best peer
}

// row holds the results of one product, by the names of the sides.
type row struct {
	product bench.Product
	peak    float64
	sides   map[string]contender
}

// compete measures all sides of one product in turns.
func compete(contest *bench.PeerBenchmark, peers []*peer, p bench.Product, rounds int, sample time.Duration) (row, error) {
	peak, ours := contest.Rates(p)
	names, rates := []string{"peak", "ours"}, []bench.Rate{peak, ours}
	var broken error
	for _, other := range peers {
		if !other.has(p.Format) {
			continue
		}
		if err := other.prepare(p); err != nil {
			return row{}, fmt.Errorf("%s: %w", other.Name, err)
		}
		names = append(names, other.Name)
		rates = append(rates, func(d time.Duration) float64 {
			rate, err := other.run(d)
			if err != nil {
				broken = fmt.Errorf("%s: %w", other.Name, err)
			}
			return rate
		})
	}
	taken := bench.Turns(rounds, sample, rates...)
	if broken != nil {
		return row{}, broken
	}
	return outcome(p, names, taken), nil
}

// outcome summarizes the rates of all sides. The first is the peak and the second the engine, which
// is compared with the best peer, round by round.
func outcome(p bench.Product, names []string, taken [][]float64) row {
	r := row{product: p, peak: bench.Median(taken[0]), sides: map[string]contender{}}
	best := -1
	for i := range names {
		if i > 1 && (best < 0 || bench.Median(taken[i]) > bench.Median(taken[best])) {
			best = i
		}
	}
	for i, name := range names[1:] {
		c := contender{rate: bench.Median(taken[i+1]), share: bench.MedianRatio(taken[i+1], taken[0])}
		if i == 0 && best > 0 {
			c.overBest = bench.MedianRatio(taken[i+1], taken[best])
		}
		r.sides[name] = c
	}
	return r
}

// table prints the results.
type table struct{ io.Writer }

// columns are the sides in the table's order.
var columns = []string{"ours", "oneDNN", "libxsmm", "OpenBLAS"}

func (t table) head() {
	line := fmt.Sprintf("%-7s %-17s %6s", "format", "shape", "peak")
	for _, name := range columns {
		line += fmt.Sprintf("  %11s", name)
	}
	fmt.Fprintf(t, "%s  %11s\n", line, "ours/best")
}

func (t table) row(r row) {
	line := fmt.Sprintf("%-7s %-17s %6.1f", r.product.Format, shape(r.product), r.peak)
	for _, name := range columns {
		cell := ""
		if c, ok := r.sides[name]; ok {
			cell = fmt.Sprintf("%.1f %3.0f%%", c.rate, 100*c.share)
		}
		line += fmt.Sprintf("  %11s", cell)
	}
	if over := r.sides["ours"].overBest; over > 0 {
		line += fmt.Sprintf("  %11.2f", over)
	}
	fmt.Fprintln(t, strings.TrimRight(line, " "))
}
