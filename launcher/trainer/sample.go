package trainer

import (
	"math"
	"math/rand/v2"

	"spmoe/datasets"
)

// The sample at the end of a run: text drawn from the model, one token at a time.

const (
	sampleTemperature = 0.7
	sampleContext     = 128 // tokens of context that are computed again for every token
)

// sample continues the prompt by n tokens. Rank 0 holds the text; the others take part with
// empty batches, because their experts are needed.
func (r *rank) sample(prompt string, n int) (string, error) {
	tokenizer := datasets.Bytes{}
	text := tokenizer.Encode([]byte(prompt))
	length := len(text)
	rng := rand.New(rand.NewPCG(r.cfg.Seed, 0))
	mark := r.ex.Mark()
	for range n {
		var context []int32
		if r.lead() {
			context = text[max(0, len(text)-min(sampleContext, r.cfg.Seq)):]
		}
		logits, err := r.model.Logits(r.ex, context, max(len(context), 1))
		if err != nil {
			return "", err
		}
		if r.lead() {
			text = append(text, draw(rng, logits.Index(len(context) - 1).F32()[:tokenizer.VocabSize()]))
		}
		r.ex.Release(mark)
	}
	return string(tokenizer.Decode(text[length:])), nil
}

// draw picks a token with probability softmax(logits / temperature).
func draw(rng *rand.Rand, logits []float32) int32 {
	top := float32(math.Inf(-1))
	for _, l := range logits {
		top = max(top, l)
	}
	weights := make([]float64, len(logits))
	var total float64
	for i, l := range logits {
		weights[i] = math.Exp(float64(l-top) / sampleTemperature)
		total += weights[i]
	}
	at := rng.Float64() * total
	for i, w := range weights {
		if at -= w; at < 0 {
			return int32(i)
		}
	}
	return int32(len(logits) - 1)
}
