package tasks

import (
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/datasets"
	"spmoe/moe"
	"spmoe/tensor"
)

// pieces is a tokenizer whose tokens are a word with the space before it, or other single bytes.
type pieces struct{ datasets.Bytes }

var words = []string{" kite", " drum", "kite", "drums", " "}

func (pieces) VocabSize() int { return 256 + len(words) }

func (pieces) Encode(text []byte) (ids []int32) {
next:
	for len(text) > 0 {
		for i, w := range words {
			if strings.HasPrefix(string(text), w) {
				ids, text = append(ids, int32(256+i)), text[len(w):]
				continue next
			}
		}
		ids, text = append(ids, int32(text[0])), text[1:]
	}
	return ids
}

// member is a rank with a small model of random weights, the same for any number of ranks.
type member struct {
	comm  *collective.Comm
	ex    *tensor.Exec
	model *moe.Model
}

func onRanks(t *testing.T, ranks, seq, vocab int, body func(m *member) error) {
	t.Helper()
	cfg, err := moe.FlavorByName("debug")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Dim, cfg.Layers, cfg.DenseInter, cfg.Experts, cfg.ExpertInter, cfg.Vocab = 32, 2, 64, 8, 32, vocab
	err = collective.NewWorld(ranks).Run(func(c *collective.Comm) error {
		model, err := moe.NewInference(cfg, moe.Unquantized(tensor.FP32), seq, c, nil)
		if err != nil {
			return err
		}
		for _, p := range model.Params() {
			p.Fill(p.Work.F32(), 0, 1)
		}
		return body(&member{c, tensor.NewExec(), model})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// scorer returns a scorer of the member's model.
func (m *member) scorer(batch int) *Scorer {
	return &Scorer{Comm: m.comm, Readers: m.comm, Models: []*moe.Model{m.model}, Batch: batch, Eval: func(b moe.Batch) error {
		_, err := m.model.Eval(m.ex, b)
		return err
	}}
}
