package moe

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/mx"
	"spmoe/tensor"
)

// quantizedModel builds a rank's model with weights, not yet quantized.
func quantizedModel(c *collective.Comm, cfg Config, precision string, o ep.Options) (*member, error) {
	p, err := PrecisionByName(precision)
	if err != nil {
		return nil, err
	}
	exchange, err := ep.New("onesided", c, cfg.Experts, o)
	if err != nil {
		return nil, err
	}
	model, err := New(cfg, p, 16, c, exchange)
	if err != nil {
		return nil, err
	}
	spread(model)
	return &member{c, tensor.NewExec(), model}, nil
}

// trainOnce quantizes the weights and trains on this rank's part of a batch.
func (m *member) trainOnce() error {
	for _, g := range m.model.Groups {
		g.Refresh(m.ex)
	}
	each := 6 / m.comm.Size()
	_, err := m.model.Train(m.ex, batchOf(1, 6, 16, m.model.Config.Vocab).part(each*m.comm.Rank(), each*(m.comm.Rank()+1)))
	return err
}

// aloneQuantized is quantizedModel for one rank.
func aloneQuantized(t *testing.T, cfg Config, precision string) *member {
	t.Helper()
	m, err := quantizedModel(collective.NewWorld(1).Comm(0), cfg, precision, ep.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Every quantized layer shows each of its operands once a pass, under the name that it has, with
// the codes that its recipe multiplies.
func TestEveryOperandIsShown(t *testing.T) {
	cfg := with(quantizable(64, 64), func(c *Config) { c.QRank = 32 })
	linears := map[int][]string{
		0: {"self_attn.q_a_proj", "self_attn.q_b_proj", "self_attn.kv_a_proj_with_mqa", "self_attn.kv_b_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj"},
		1: {"self_attn.q_a_proj", "self_attn.q_b_proj", "self_attn.kv_a_proj_with_mqa", "self_attn.kv_b_proj", "self_attn.o_proj",
			"experts.gate_up_proj", "experts.down_proj", "shared_experts.gate_up_proj", "shared_experts.down_proj"},
	}
	linears[2] = append([]string{"eh_proj"}, linears[1]...) // MTP
	for _, precision := range []string{"mxfp8", "mxfp8-experts", "mxfp8-wgrad-bf16", "mxint8", "bf16"} {
		want := map[string]int{}
		for layer, names := range linears {
			for _, name := range names {
				for _, o := range []Operand{Input, Weight, Gradient} {
					shared := o == Input && name == "self_attn.kv_a_proj_with_mqa"
					if precision != "bf16" && !shared && (precision != "mxfp8-experts" || strings.HasPrefix(name, "experts.")) {
						want[fmt.Sprint(layer, " ", name, " ", o)] = 1
					}
				}
			}
		}
		got := map[string]int{}
		m := aloneQuantized(t, cfg, precision)
		m.model.ObserveQuantized(func(q Quantized) {
			got[fmt.Sprint(q.Layer, " ", q.Linear, " ", q.Operand)]++
			high := precision == "mxfp8-wgrad-bf16" && q.Operand != Weight
			if q.Local != (q.Operand != Weight || strings.HasPrefix(q.Linear, "experts.")) || q.Sent || q.Received || q.Cols.Codes.Valid() == high {
				t.Errorf("%s: %d %s %v: local %v, sent %v, received %v, columns %v", precision, q.Layer, q.Linear, q.Operand, q.Local, q.Sent, q.Received, q.Cols.Codes.Valid())
			}
			rows := mx.New(m.ex, q.Format, mx.AlongRows, q.X.Rows, q.X.Cols)
			mx.Quantize(m.ex, rows, q.X, mx.RCEIL)
			if q.Rows.Format != q.Format || !bytes.Equal(rows.Codes.U8(), q.Rows.Codes.U8()) || !bytes.Equal(rows.Scales.U8(), q.Rows.Scales.U8()) {
				t.Errorf("%s: %d %s %v: the codes are not those of what it was", precision, q.Layer, q.Linear, q.Operand)
			}
			if experts := strings.HasPrefix(q.Linear, "experts."); experts && (len(q.Ends) != cfg.Experts || int(q.Ends[cfg.Experts-1]) != q.X.Rows) {
				t.Errorf("%s: %d %s %v: groups end at %v in %d rows", precision, q.Layer, q.Linear, q.Operand, q.Ends, q.X.Rows)
			}
		})
		if err := m.trainOnce(); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: shown were %v, want %v", precision, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
	}
}

// What an observer does to codes and scales reaches the product that they are for, and no other;
// without changes nothing differs.
func TestObserverCanBreakOperands(t *testing.T) {
	cfg := quantizable(64, 64)
	run := func(f func(q Quantized)) map[string][]float32 {
		m := aloneQuantized(t, cfg, "mxfp8")
		m.model.ObserveQuantized(f)
		if err := m.trainOnce(); err != nil {
			t.Fatal(err)
		}
		return m.gradients()
	}
	// double makes an operand of one layer twice as large in one form.
	double := func(linear string, o Operand, of func(q Quantized) mx.Tensor) func(q Quantized) {
		return func(q Quantized) {
			if q.Layer == 1 && q.Linear == linear && q.Operand == o {
				for i := range of(q).Scales.U8() {
					of(q).Scales.U8()[i]++
				}
			}
		}
	}
	rows, cols := func(q Quantized) mx.Tensor { return q.Rows }, func(q Quantized) mx.Tensor { return q.Cols }
	want := run(nil)
	if got := run(func(Quantized) {}); !maps.EqualFunc(got, want, slices.Equal) {
		t.Error("an observer that changes nothing changed a gradient")
	}
	const shared, embedding = "model.layers.1.mlp.shared_experts.down_proj.weight", "model.embed_tokens.weight"
	for name, c := range map[string]struct {
		f       func(q Quantized)
		doubles string // the gradient that is twice as large then
		changes bool   // whether gradients of layers below change
	}{
		"gradient for wgrad": {double("shared_experts.down_proj", Gradient, cols), shared, false},
		"input for wgrad":    {double("shared_experts.down_proj", Input, cols), shared, false},
		"gradient for dgrad": {double("shared_experts.down_proj", Gradient, rows), "", true},
		"weight for dgrad":   {double("shared_experts.down_proj", Weight, cols), "", true},
		"weight for forward": {double("shared_experts.down_proj", Weight, rows), "", true},
		"input for forward":  {double("shared_experts.down_proj", Input, rows), "", true},
	} {
		got := run(c.f)
		if changed := !slices.Equal(got[embedding], want[embedding]); changed != c.changes {
			t.Errorf("%s doubled: the embedding's gradient changed: %v", name, changed)
		}
		if c.doubles == "" {
			continue
		}
		for i, g := range got[c.doubles] {
			if g != 2*want[c.doubles][i] {
				t.Fatalf("%s doubled: a gradient of %s is %g, before %g", name, c.doubles, g, want[c.doubles][i])
			}
		}
	}
}

// Rows that arrive as codes are measured where they are multiplied, and by their senders, which
// alone have the unquantized rows. In all, a gradient is measured once per choice of a token, an
// input once per token.
func TestRowsOnTheWireAreShown(t *testing.T) {
	cfg := quantizable(64, 64)
	type seen struct {
		sent, received int // rows
		noise          float64
	}
	var mu sync.Mutex
	all := map[Operand]*seen{Input: {}, Gradient: {}}
	err := collective.NewWorld(2).Run(func(c *collective.Comm) error {
		m, err := quantizedModel(c, cfg, "mxfp8", ep.Options{Dispatch: ep.MXFP8, CombineBackward: ep.MXFP8})
		if err != nil {
			return err
		}
		m.model.ObserveQuantized(func(q Quantized) {
			mu.Lock()
			defer mu.Unlock()
			onWire := q.Layer == 1 && (q.Linear == "experts.gate_up_proj" && q.Operand == Input || q.Linear == "experts.down_proj" && q.Operand == Gradient)
			if q.Layer != 1 {
				return
			}
			if onWire != (q.Sent || q.Received) || q.Sent && q.Received {
				t.Errorf("%s %v: sent %v, received %v", q.Linear, q.Operand, q.Sent, q.Received)
			}
			if !onWire {
				return
			}
			decoded := m.ex.New(tensor.FP32, q.X.Rows, q.X.Cols).Mat()
			mx.Dequantize(m.ex, decoded, q.Rows)
			d := distance(elements(decoded), elements(q.X))
			if s := all[q.Operand]; q.Sent {
				s.sent += q.X.Rows
				s.noise = max(s.noise, d)
			} else if s.received += q.X.Rows; d != 0 {
				t.Errorf("%v: what was received is %.2g from what its codes mean", q.Operand, d)
			}
		})
		return m.trainOnce()
	})
	if err != nil {
		t.Fatal(err)
	}
	tokens := 6 * 16
	if in := all[Input]; in.sent != tokens || in.received != tokens*cfg.TopK || !(in.noise > 0.01 && in.noise < 0.05) {
		t.Errorf("input: %+v for %d tokens", *in, tokens)
	}
	if g := all[Gradient]; g.sent != tokens*cfg.TopK || g.received != g.sent || !(g.noise > 0.01 && g.noise < 0.05) {
		t.Errorf("gradient: %+v for %d tokens", *g, tokens)
	}
}

// The quantized forms of a dense weight exist once for all ranks. One rank quantizes them, and the
// others see the same memory afterwards.
func TestQuantizedWeightsAreShared(t *testing.T) {
	const ranks = 4
	var mu sync.Mutex
	made, seen := map[string]*byte{}, map[string]int{}
	err := collective.NewWorld(ranks).Run(func(c *collective.Comm) error {
		m, err := quantizedModel(c, quantizable(64, 64), "mxfp8", ep.Options{})
		if err != nil {
			return err
		}
		m.model.ObserveQuantized(func(q Quantized) {
			mu.Lock()
			defer mu.Unlock()
			if q.Operand != Weight || strings.HasPrefix(q.Linear, "experts.") {
				return
			}
			name, at := fmt.Sprint(q.Layer, q.Linear), &q.Rows.Codes.Bytes()[0]
			switch first, ok := made[name]; {
			case !q.Elsewhere && ok:
				t.Errorf("%s is quantized twice", name)
			case !q.Elsewhere:
				made[name] = at
			case first != at:
				t.Errorf("rank %d reads %s in memory of its own, or before it is quantized", c.Rank(), name)
			}
			seen[name]++
		})
		for _, g := range m.model.Groups {
			if err := g.Refresh(m.ex); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(made) == 0 {
		t.Error("no dense weight is quantized")
	}
	for name, n := range seen {
		if n != ranks {
			t.Errorf("%d of %d ranks see %s", n, ranks, name)
		}
	}
}

// An evaluation shows inputs alone, and nothing once the observer is gone.
func TestObserverInEvaluation(t *testing.T) {
	cfg := quantizable(64, 64)
	m := aloneQuantized(t, cfg, "mxfp8")
	for _, g := range m.model.Groups {
		g.Refresh(m.ex)
	}
	count := 0
	m.model.ObserveQuantized(func(q Quantized) {
		if count++; q.Operand != Input || q.Cols.Codes.Valid() {
			t.Errorf("%s shows a %v, columns %v", q.Linear, q.Operand, q.Cols.Codes.Valid())
		}
	})
	first, err := m.model.Eval(m.ex, batchOf(1, 6, 16, cfg.Vocab))
	if err != nil {
		t.Fatal(err)
	}
	shown := count
	m.model.ObserveQuantized(nil)
	second, err := m.model.Eval(m.ex, batchOf(1, 6, 16, cfg.Vocab))
	if err != nil {
		t.Fatal(err)
	}
	if shown == 0 || count != shown || first.Sum != second.Sum || math.IsNaN(first.Sum) {
		t.Errorf("%d operands shown, %d more without an observer; losses %v and %v", shown, count-shown, first.Sum, second.Sum)
	}
}
