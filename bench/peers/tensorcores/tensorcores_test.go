package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
)

// A step writes three products of each weight. What follows a header has the size that the header
// says, as verify.py reads it. (The output of debug has the shape of another weight.)
func TestProducts(t *testing.T) {
	for _, o := range []options{
		{flavor: "debug", precision: "bf16", sum: "h100", layers: 2, seq: 32, sequences: 2, threads: 2},
		{flavor: "debug", precision: "fp8-block", sum: "h100", layers: 2, seq: 128, sequences: 1, threads: 2},
	} {
		var stream bytes.Buffer
		if err := o.run(&stream); err != nil {
			t.Fatal(err)
		}
		kinds := map[string][]string{}
		for r := bufio.NewReader(&stream); ; {
			line, err := r.ReadBytes('\n')
			if err == io.EOF && len(line) == 0 {
				break
			}
			var h header
			if err := json.Unmarshal(line, &h); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Discard(h.bytes()); err != nil {
				t.Fatalf("%+v: %v", h, err)
			}
			if !slices.Contains(kinds[h.Weight], h.Kind) {
				kinds[h.Weight] = append(kinds[h.Weight], h.Kind)
			}
		}
		for _, weight := range []string{"kv_a_proj_with_mqa", "kv_b_proj", "mlp.down_proj", "experts.down_proj"} {
			if len(kinds[weight]) != 3 {
				t.Errorf("%s: %s has %v, want forward, dgrad and wgrad", o.precision, weight, kinds[weight])
			}
		}
	}
}

// bytes returns the size of the numbers after a header.
func (h header) bytes() int {
	n := 2*(h.M+h.N)*h.K + 4*h.M*h.N*len(h.Spans) + 4*h.Corner*h.Corner*len(h.Mutants)
	for i, rows := range []int{h.M, h.N} {
		if of := h.Rows[i]; of > 0 {
			n += 4 * ((rows + of - 1) / of) * ((h.K + 127) / 128)
		}
	}
	if h.More {
		n += 4 * h.M * h.N
	}
	return n
}

func TestSumsOfNoGPU(t *testing.T) {
	err := options{flavor: "debug", precision: "bf16", sum: "exact", layers: 1, seq: 8, sequences: 1, threads: 1}.run(io.Discard)
	if err == nil || !strings.Contains(err.Error(), "h100") {
		t.Errorf("%v, want an error that names the sums of a GPU", err)
	}
}
