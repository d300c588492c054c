package moe

// Texts that are computed a few tokens at a time, against passes over all of them.
// decode_exact_test.go compares log-probabilities with those of training.

import (
	"slices"
	"testing"

	"spmoe/collective"
	"spmoe/tensor"
)

// logits returns the scores after each token of sequences, from one pass over all of them.
func (m *member) logits(inputs []int32, seq int) (rows [][]float32, err error) {
	pass, w := m.model.newPass(m.ex, Batch{Inputs: inputs, Seq: seq, GlobalSequences: 1}, false), m.model.output.weight.W
	defer pass.release()
	defer m.ex.Release(m.ex.Mark())
	p := pass.forwardPhase(m.ex)
	h, err := m.model.hidden(pass, p, Boundary{})
	if err != nil {
		return nil, err
	}
	h = m.model.headMix.read(p, h, &pass.mixed)
	scores := tensor.New(tensor.FP32, len(inputs), w.Dim(0))
	m.model.output.sum.Multiply(m.ex, scores.Mat(), m.model.norms[0].forward(p, p.scratch, h.Mat(), &pass.norm).Mat(), w.Mat().T())
	for i := range inputs {
		rows = append(rows, scores.Index(i).F32())
	}
	return rows, nil
}

// inParts returns the scores at the end of each part of a text, whose parts end at ends.
func (m *member) inParts(d *Decoder, text []int32, ends ...int) ([][]float32, error) {
	c := d.NewCache(len(text))
	var rows [][]float32
	for _, end := range ends {
		logits, err := d.Extend(m.ex, c, text[c.Tokens():end])
		if err != nil {
			return nil, err
		}
		rows = append(rows, slices.Clone(logits))
	}
	return rows, nil
}

// decoder returns a decoder for the longest sequences.
func (m *member) decoder(t testing.TB) *Decoder {
	t.Helper()
	d, err := m.model.NewDecoder(m.ex, m.model.Config.MaxPositions)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// All ways to cut a text into parts give the scores of a pass over all of it.
func TestExtendFollowsLogits(t *testing.T) {
	ways := [][]int{{13}, {1, 13}, {6, 7, 12, 13}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}}
	models := map[string]Config{}
	for _, v := range variants() {
		models[v.String()] = v.config()
	}
	for name, edit := range sharingKeys {
		models[name] = with(tiny(), edit)
	}
	models["chosen keys"] = with(tiny(), func(c *Config) { choosing(c); c.IndexTopK = 4 })
	models["chosen keys, halves"] = with(tiny(), func(c *Config) { choosing(c); c.IndexTopK, c.IndexRope = 2, halfPairs })
	models["like DeepSeek-V4"] = with(tiny(), likeV4)
	models["warmup"] = with(tiny(), func(c *Config) { choosing(c); c.IndexStage = indexWarmup })
	for name, cfg := range models {
		t.Run(name, func(t *testing.T) {
			m := alone(t, cfg, tensor.FP32, 13)
			d, mark := m.decoder(t), m.ex.Mark()
			text, _ := text(3, 1, 13, m.model.Config.Vocab)
			want, err := m.logits(text, 13)
			if err != nil {
				t.Fatal(err)
			}
			for _, ends := range ways {
				got, err := m.inParts(d, text, ends...)
				if err != nil {
					t.Fatal(err)
				}
				for i, end := range ends {
					if !slices.Equal(got[i], want[end-1]) {
						t.Errorf("cut at %v: scores after token %d are off by %.2g", ends, end, distance(got[i], want[end-1]))
					}
				}
			}
			if m.ex.Mark() != mark {
				t.Error("activations are left in the arena")
			}
		})
	}
}

// decodable is a model for decoding in any precision: its widths are whole blocks, and its products
// have few or many rows.
func decodable() Config {
	return with(tiny(), func(c *Config) {
		c.Dim, c.DenseInter, c.ExpertInter, c.QRank, c.KVRank, c.NopeDim, c.ValueDim = 64, 64, 32, 32, 64, 32, 32
		c.TopK, c.MaxPositions = 4, 256
	})
}

// quantizedMember builds this rank's part of a model in a precision.
func quantizedMember(c *collective.Comm, cfg Config, precision string, seq int) (*member, error) {
	p, err := PrecisionByName(precision)
	if err != nil {
		return nil, err
	}
	m, err := New(cfg, p, seq, c, nil)
	if err != nil {
		return nil, err
	}
	spread(m)
	ex := tensor.NewExec()
	for _, g := range m.Groups {
		g.Refresh(ex)
	}
	return &member{c, ex, m}, nil
}

func TestDecoderRefuses(t *testing.T) {
	m := alone(t, tiny(), tensor.FP32, 8)
	_, err := m.model.NewDecoder(m.ex, 65)
	contains(t, err, "context is 65", "1 to 64 (model.max_positions)")
}
