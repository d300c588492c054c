package moe

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
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
			if q.Local != (q.Operand != Weight || strings.HasPrefix(q.Linear, "experts.")) || q.Received || q.Cols.Codes.Valid() == high {
				t.Errorf("%s: %d %s %v: local %v, received %v, columns %v", precision, q.Layer, q.Linear, q.Operand, q.Local, q.Received, q.Cols.Codes.Valid())
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
