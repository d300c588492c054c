package trainer

// Evaluation on the validation text, whose windows are spread over the ranks.

import (
	"context"
	"fmt"

	"spmoe/collective"
	"spmoe/datasets"
	"spmoe/internal/fault"
	"spmoe/launcher/generate"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/observe"
	"spmoe/launcher/trainer/state"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// evaluator measures the validation loss between steps.
type evaluator struct {
	job      *Job
	comm     *collective.Comm
	readers  *collective.Comm // the ranks that read different windows
	ex       *tensor.Exec
	state    *state.TrainState
	recorder *observe.Recorder
	windows  *datasets.Windows // of all ranks

	step     int     // of the newest evaluation
	loss     float64 // of that evaluation, nats per token
	measured measurement
}

// measurement is the result of an evaluation.
type measurement struct {
	loss          float64   // nats per token
	passLosses    []float64 // of each pass, nats per token
	bytesPerToken float64   // of the validation text
}

// due reports whether an evaluation is due after the last step. The final step of a run always has
// one.
func (e *evaluator) due() bool {
	step, cfg := e.state.Progress.Step, &e.job.cfg
	return config.Due(cfg.EvalInterval(), step) && step < cfg.Steps
}

// evaluate returns the mean loss over the validation windows, in nats per token, and reports it. It
// is collective.
func (e *evaluator) evaluate() (float64, error) {
	m, err := e.measure()
	if err != nil {
		return 0, err
	}
	e.measured = m
	eval := events.Eval{
		Step: e.state.Progress.Step, Loss: m.loss,
		BitsPerByte: events.BitsPerByte(m.loss, m.bytesPerToken), Sequences: e.windows.Total(),
	}
	if e.comm.Rank() == 0 {
		e.job.report.Eval(eval)
	}
	e.recorder.Evaluation(eval)
	return m.loss, nil
}

// passSum is the sum of a pass over windows: the loss in nats, and how much text it is of.
type passSum struct{ loss, tokens, bytes float64 }

// measure runs the validation windows through the model. It is collective.
func (e *evaluator) measure() (m measurement, err error) {
	passes, err := e.passes()
	if err != nil {
		return m, err
	}
	numbers := make([]float64, 0, 3*len(passes))
	for _, pass := range passes {
		numbers = append(numbers, pass.loss, pass.tokens, pass.bytes)
	}
	defer e.ex.Enter(e.ex.Enter(profile.Collectives))
	if err := collective.AllReduce(e.comm, numbers, collective.Sum); err != nil {
		return m, fmt.Errorf("summing the validation loss: %w", err)
	}
	var all passSum
	for i := 0; i < len(numbers); i += 3 {
		loss, tokens := numbers[i], numbers[i+1]
		all = passSum{all.loss + loss, all.tokens + tokens, all.bytes + numbers[i+2]}
		m.passLosses = append(m.passLosses, loss/max(tokens, 1))
	}
	m.loss, m.bytesPerToken = all.loss/max(all.tokens, 1), all.bytes/max(all.tokens, 1)
	return m, nil
}

// passes runs this rank's windows through the model, and returns the sums of each pass. A pass
// covers the next windows of all ranks, at most as many as sequences in training. So which windows
// share a pass does not depend on the layout, unless ranks share windows.
func (e *evaluator) passes() (sums []passSum, err error) {
	data, total, sharers := e.state.Data, e.windows.Total(), e.job.cfg.Sharers()
	rank, ranks := e.readers.Rank()/sharers, e.readers.Size()/sharers
	micro, row := data.Micro(), data.Seq+1
	rows := make([]int32, micro*row)
	for first := 0; first < total; first += micro * ranks {
		n := min(micro*ranks, total-first)
		lo, hi := first+n*rank/ranks, first+n*(rank+1)/ranks
		for i := lo; i < hi; i++ {
			e.windows.Read(rows[(i-lo)*row:][:row], i)
		}
		fault.Point(fault.InEvaluation)
		batch := data.Split(rows[:(hi-lo)*row], total)
		batch.Shared = sharers > 1
		loss, err := e.state.Eval(e.ex, batch)
		if err != nil {
			return nil, fmt.Errorf("evaluation: %w", err)
		}
		sum := passSum{loss: loss.Sum, tokens: float64(loss.Tokens)}
		if loss.Tokens > 0 && e.readers.Rank()%sharers == 0 { // not in a stage without the head
			sum.bytes = float64(e.job.bytesOf(batch.Targets))
		}
		sums = append(sums, sum)
	}
	return sums, nil
}

// The samples that the model writes during a run and at its end.

// sampleTemperature is the temperature of samples.
const sampleTemperature = 0.7

// sampleIfDue reports and records a sample if one is due after the last step. The end of a run has
// a sample of its own. It changes nothing that training depends on. It is collective.
func (r *rank) sampleIfDue() error {
	cfg, step := &r.job.cfg, r.Progress.Step
	if step == 0 || step == cfg.Steps || cfg.SampleTokens == 0 || !config.Due(cfg.SampleEvery, step) {
		return nil
	}
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
