package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"spmoe/bench"
)

// The engine is compared with the best peer in the median, round by round; a peer with none.
func TestOutcome(t *testing.T) {
	p := bench.Product{Format: "bf16", Groups: 1, M: 2, N: 3, K: 4}
	got := outcome(p, []string{"peak", "ours", "slow", "fast"}, [][]float64{
		{100, 200, 100}, // peak
		{50, 120, 60},
		{10, 10, 1000},
		{100, 100, 80},
	})
	want := row{p, 100, map[string]contender{
		"ours": {60, 0.6, 0.75},
		"slow": {10, 0.1, 0},
		"fast": {100, 0.8, 0},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	alone := outcome(p, []string{"peak", "ours"}, [][]float64{{4}, {2}})
	if want := (contender{2, 0.5, 0}); alone.sides["ours"] != want {
		t.Errorf("without peers: %+v, want %+v", alone.sides["ours"], want)
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	table{&b}.head()
	table{&b}.row(row{bench.Product{Format: "bf16", Groups: 1, M: 1024, N: 1024, K: 1024}, 228.5, map[string]contender{
		"ours": {206.4, 0.92, 0.934}, "oneDNN": {220.8, 0.97, 0}, "libxsmm": {224.5, 1.012, 0},
	}})
	table{&b}.row(row{bench.Product{Format: "fp32", Groups: 32, M: 8, N: 2048, K: 1024}, 114, map[string]contender{
		"ours": {106, 0.93, 1.1}, "OpenBLAS": {96, 0.84, 0},
	}})
	want := `
format  shape               peak         ours       oneDNN      libxsmm     OpenBLAS    ours/best
bf16    1024x1024x1024     228.5   206.4  92%   220.8  97%   224.5 101%                      0.93
fp32    32x8x2048x1024*    114.0   106.0  93%                              96.0  84%         1.10
`
	if got := "\n" + b.String(); got != want {
		t.Errorf("%s\nwant%s", got, want)
	}
}

func TestShape(t *testing.T) {
	for want, p := range map[string]bench.Product{
		"1x2x3":    {Groups: 1, M: 1, N: 2, K: 3},
		"1x2x3*":   {Groups: 1, M: 1, N: 2, K: 3, Streamed: true},
		"4x1x2x3*": {Groups: 4, M: 1, N: 2, K: 3},
	} {
		if got := shape(p); got != want {
			t.Errorf("%+v is %q, want %q", p, got, want)
		}
	}
}

// fake is a peer that answers a command as its script says, and ends with it.
func fake(script map[string]string) (p *peer, asked *[]string) {
	read, in := io.Pipe()
	out, write := io.Pipe()
	asked = new([]string)
	go func() {
		defer write.Close()
		for lines := bufio.NewScanner(read); lines.Scan(); {
			*asked = append(*asked, lines.Text())
			answer, ok := script[lines.Text()]
			if !ok {
				return
			}
			fmt.Fprintln(write, answer)
		}
	}()
	return &peer{library: libraries[0], in: in, out: bufio.NewScanner(out)}, asked
}

// What is asked of a peer's program, and what is made of its answers.
func TestPeer(t *testing.T) {
	p, asked := fake(map[string]string{
		"prepare int8 2 3 4 5 1": "ok", "run 0.25": "123.5",
		"prepare fp32 1 1 2 3 1": "error no kernel", "run 1": "fast",
	})
	if err := p.prepare(bench.Product{Format: "mxint8", Groups: 2, M: 3, N: 4, K: 5}); err != nil {
		t.Error(err)
	}
	if rate, err := p.run(250 * time.Millisecond); rate != 123.5 || err != nil {
		t.Errorf("a rate of %g, %v", rate, err)
	}
	if err := p.prepare(bench.Product{Format: "fp32", Groups: 1, M: 1, N: 2, K: 3}); err == nil || !strings.Contains(err.Error(), "no kernel") {
		t.Errorf("what the program cannot do is the error %v", err)
	}
	if _, err := p.run(time.Second); err == nil {
		t.Error("a rate that is no number is taken")
	}
	if _, err := p.run(2 * time.Second); err == nil || !strings.Contains(err.Error(), "ended") {
		t.Errorf("a program that ends is the error %v", err)
	}
	if want := []string{"prepare int8 2 3 4 5 1", "run 0.25", "prepare fp32 1 1 2 3 1", "run 1", "run 2"}; !slices.Equal(*asked, want) {
		t.Errorf("asked %q, want %q", *asked, want)
	}
}

// Each library's program is there, and every product has a peer.
func TestLibraries(t *testing.T) {
	formats := map[string]bool{}
	for _, l := range libraries {
		if text, err := sources.ReadFile("src/" + l.source); err != nil || !bytes.Contains(text, []byte(`#include "peer.h"`)) {
			t.Errorf("%s: no program: %v", l.Name, err)
		}
		for _, f := range l.formats {
			formats[f] = true
		}
	}
	for _, p := range bench.Products() {
		if !formats[p.Format] {
			t.Errorf("%s %s: no peer", p.Format, shape(p))
		}
	}
}

// A library whose program does not build is named with the package to install.
func TestMissing(t *testing.T) {
	l := libraries[0]
	t.Setenv("PATH", t.TempDir())
	if _, err := l.build(t.TempDir()); err == nil || !strings.Contains(err.Error(), "apt-get install g++") {
		t.Errorf("without a compiler the error is %v", err)
	}
}

// Bad flags are refused before anything is built.
func TestFlags(t *testing.T) {
	for _, c := range []struct {
		rounds int
		match  string
		want   string
	}{{0, "", "rounds is 0"}, {1, "(", "-match"}} {
		if err := run(io.Discard, c.rounds, time.Second, c.match); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("rounds %d, match %q: error %v, want %q in it", c.rounds, c.match, err, c.want)
		}
	}
}
