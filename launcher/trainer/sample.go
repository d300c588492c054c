package trainer

// The samples that the model writes during a run and at its end.

import (
	"context"

	"spmoe/launcher/generate"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/observe"
)

// sampleTemperature is the temperature of samples.
const sampleTemperature = 0.7

// sampleIfDue reports and records a sample if one is due after the last step. The end of a run has
// a sample of its own. It changes nothing that training depends on. It is collective.
func (r *rank) sampleIfDue() error {
	cfg, step := &r.job.cfg, r.Progress.Step
	if step == 0 || step == cfg.Steps || cfg.SampleTokens == 0 || !config.Due(cfg.SampleEvery, step) {
		return nil
	}
	defer r.watch.Tracer.During(observe.TraceSample)()
	text, err := r.sample()
	if err != nil || !r.lead() {
		return err
	}
	s := events.Sample{Step: step, Prompt: cfg.SamplePrompt, Text: text}
	r.watch.Recorder.Sample(s)
	r.job.report.Sample(s)
	return nil
}

// sample continues the prompt, even past the end of a document. It is collective.
func (r *rank) sample() (string, error) {
	cfg := &r.job.cfg
	g := generate.Generator{Ex: r.ex, Comm: r.comm, Peers: r.mesh.World, Model: r.Model, Tokenizer: r.job.tokenizer}
	if r.Pipe != nil {
		g.Model = r.Pipe
	}
	texts, _, err := g.Run(context.Background(), []string{cfg.SamplePrompt}, generate.Options{
		Sampling:  generate.Sampling{Temperature: sampleTemperature, TopP: 1, Seed: cfg.Seed},
		MaxTokens: cfg.SampleTokens, Context: cfg.Seq, Slide: true, Endless: true,
	})
	if err != nil {
		return "", err
	}
	return texts[0].Text, nil
}
