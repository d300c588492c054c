package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestSelectRows(t *testing.T) {
	got, err := selectRows("seq-8192,small")
	if err != nil || len(got) != 2 || got[0].name != "seq-8192" || got[1].name != "small" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := selectRows("all"); err != nil || len(got) != len(rows) {
		t.Errorf("all: %v, %v", got, err)
	}
	if _, err := selectRows("small,large"); err == nil || !strings.Contains(err.Error(), `"large"`) || !strings.Contains(err.Error(), "16B-slice") {
		t.Errorf("an unknown row: %v", err)
	}
}

// Both sides get the same flags for the model and the step.
func TestParseRow(t *testing.T) {
	r, err := parseRow([]string{"--flavor", "16B", "-seq=64", "--model.layers", "3", "--model.norm-top-k=false"})
	if err != nil {
		t.Fatal(err)
	}
	sizes := []string{"--seq", "64", "--batch", "8", "--model.layers=3", "--model.norm-top-k=false"}
	if got, want := r.inspect(), append([]string{"inspect", "16B", "--json"}, sizes...); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	train := strings.Join(r.benchTrain(2, 3, "mxfp8"), " ")
	if want := "-np 2 --threads 3 bench train --quick --flavor 16B --precision mxfp8 --json - " + strings.Join(sizes, " "); train != want {
		t.Errorf("%s\nwant %s", train, want)
	}
	for args, want := range map[string]string{
		"--seq":            "--seq needs a value",
		"--seq long":       "long",
		"--optimizer.lr 1": "--optimizer.lr does not change the shape",
	} {
		if _, err := parseRow(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

var choices = []option{{"a", []string{"1", "2", "3"}}, {"b", []string{"x", "y"}}, {"c", []string{"p", "q"}}}

// The search keeps what is faster, one option after the other, and leaves given ones alone.
func TestSearch(t *testing.T) {
	s, fixed, err := start(choices, "c=q")
	if err != nil {
		t.Fatal(err)
	}
	rates := map[string]float64{
		"a=1,b=x,c=q": 10, "a=2,b=x,c=q": 12, "a=3,b=x,c=q": 11,
		"a=2,b=y,c=q": 12.05, // no faster than noise
	}
	var tried []string
	best, err := search(choices, s, fixed, func(s setting) (float64, error) {
		tried = append(tried, s.String())
		if rates[s.String()] == 0 {
			t.Errorf("tried %s", s)
		}
		return rates[s.String()], nil
	})
	if err != nil || best.String() != "a=2,b=x,c=q" || len(tried) != 4 {
		t.Errorf("%s of %v, %v", best, tried, err)
	}
}

// A default that fails is replaced by any value that does not. If all fail, the first error counts.
func TestSearchFailures(t *testing.T) {
	s, fixed, err := start(choices, "")
	if err != nil {
		t.Fatal(err)
	}
	best, err := search(choices, s, fixed, func(s setting) (float64, error) {
		if s.String() == "a=1,b=y,c=p" {
			return 1, nil
		}
		return 0, errors.New("out of memory with " + s.String())
	})
	if err != nil || best.String() != "a=1,b=y,c=p" {
		t.Errorf("%s, %v", best, err)
	}
	_, err = search(choices, s, fixed, func(s setting) (float64, error) { return 0, errors.New("no " + s.String()) })
	if err == nil || err.Error() != "no a=1,b=x,c=p" {
		t.Errorf("%v", err)
	}
}

func TestStartRefuses(t *testing.T) {
	for set, want := range map[string]string{"a": `"a" is not NAME=VALUE`, "a=2,d=4": `no option "d"`} {
		if _, _, err := start(choices, set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", set, err, want)
		}
	}
}

// program writes a shell script and returns its path.
func program(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// fakes returns a comparison of two scripts. The launcher of a row with --seq 2 has no memory.
func fakes(t *testing.T, python string) (*contest, *bytes.Buffer) {
	out := new(bytes.Buffer)
	launcher := program(t, `
case "$*" in
inspect*) echo '{"shape": 1}' ;;
*"--seq 2 "*) echo "launcher: 2 ranks need 30 GiB of memory" >&2; exit 1 ;;
*) echo '{"name": "bf16_tokens_per_s", "value": 300}'; echo '{"name": "bf16_memory_bytes", "value": 1073741824}' ;;
esac
`)
	return &contest{
		rows:      []row{{name: "one", flavor: "f", batch: 4, seq: 1}, {name: "two", flavor: "f", batch: 4, seq: 2}},
		precision: "bf16", python: program(t, python), launcher: launcher, script: "train.py",
		threads: 4, ranks: 2, rounds: 2, steps: 1, out: out,
	}, out
}

// A row that one side has no memory for shows the other side's figures.
func TestRunRows(t *testing.T) {
	c, out := fakes(t, `
case "$*" in
*--options*) echo '[{"name": "kind", "values": ["slow", "fast"]}]'; exit ;;
esac
read shape
[ "$shape" = '{"shape": 1}' ] || exit 3
case "$*" in
*kind=fast*) rate=100 ;;
*) rate=50 ;;
esac
echo "{\"name\": \"torch_bf16_tokens_per_s\", \"value\": $rate}"
echo '{"name": "torch_bf16_memory_bytes", "value": 2147483648}'
`)
	if err := c.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	want := `4 threads, 2 ranks; this engine in bf16, PyTorch in bf16; medians of 2 turns each
tokens/s, GiB       engine   PyTorch  ratio    memory PyTorch's
one                    300       100   3.00      1.00      2.00
  steps of 4 sequences of 1 tokens; PyTorch's best of 2 variants: kind=fast
two                      -       100      -         -      2.00
  steps of 4 sequences of 2 tokens; PyTorch's best of 2 variants: kind=fast
  this engine does not train it: launcher: 2 ranks need 30 GiB of memory
`
	if got := out.String(); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// A side that fails for another reason than memory makes the whole run fail, but not the next row.
func TestRunFails(t *testing.T) {
	c, out := fakes(t, `
case "$*" in
*--options*) echo '[{"name": "kind", "values": ["slow"]}]' ;;
*) echo "this model has 7 parameters, the launcher's 8" >&2; exit 1 ;;
esac
`)
	err := c.run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "one: this model has 7 parameters") || !strings.Contains(err.Error(), "two: this model") {
		t.Errorf("%v", err)
	}
	if !strings.Contains(out.String(), "one                    300         -      -") || !strings.Contains(out.String(), "\ntwo ") {
		t.Errorf("%s", out)
	}
}

func TestFailureForLackOfMemory(t *testing.T) {
	for reason, want := range map[string]bool{
		"RuntimeError: [enforce fail at alloc_cpu.cpp:66] . DefaultCPUAllocator: can't allocate memory": true,
		"ModuleNotFoundError: No module named 'torch'":                                                  false,
	} {
		_, err := side{program: program(t, "echo first >&2; echo \""+reason+"\" >&2; exit 1")}.figures(context.Background())
		var f *failure
		if !errors.As(err, &f) || f.reason != reason || f.memory() != want {
			t.Errorf("%v, want %q", err, reason)
		}
	}
	_, err := side{program: program(t, "kill -9 $$")}.figures(context.Background())
	var f *failure
	if !errors.As(err, &f) || !f.memory() {
		t.Errorf("killed: %v", err)
	}
}

func TestFiguresRefuses(t *testing.T) {
	for text, want := range map[string]string{"echo no": "printed", "true": "printed no figures"} {
		if got, err := (side{program: program(t, text)}).figures(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	got, err := side{program: program(t, `echo '{"name": "a", "value": 2}'`)}.figures(context.Background())
	if want := map[string]float64{"a": 2}; err != nil || !reflect.DeepEqual(got, want) {
		t.Error(fmt.Sprint(got, err))
	}
}
