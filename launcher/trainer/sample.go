package trainer

// The sample that the model writes at the end of a run.

import (
	"context"

	"spmoe/launcher/generate"
)

// sampleTemperature is the temperature of the sample.
const sampleTemperature = 0.7

// sample continues the prompt by n tokens, even past the end of a document. It is collective.
func sample(r *rank, prompt string, n int) (string, error) {
	g := generate.Generator{Ex: r.ex, Comm: r.comm, Peers: r.mesh.World, Model: r.model, Tokenizer: r.job.tokenizer}
	if r.pipe != nil {
		g.Model = r.pipe
	}
	texts, _, err := g.Run(context.Background(), []string{prompt}, generate.Options{
		Sampling:  generate.Sampling{Temperature: sampleTemperature, TopP: 1, Seed: r.job.cfg.Seed},
		MaxTokens: n, Context: r.job.cfg.Seq, Slide: true, Endless: true,
	})
	if err != nil {
		return "", err
	}
	return texts[0].Text, nil
}
