package inspecting

// generate --logprobs and --check: the log-probabilities of the sampled tokens, and those of the
// same tokens in the forward pass of a training step.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"spmoe/collective"
	"spmoe/launcher/cli"
	"spmoe/launcher/evaluation"
	"spmoe/launcher/generate"
	"spmoe/launcher/report"
	"spmoe/launcher/running"
	"spmoe/moe"
	"spmoe/tensor"
)

// exactness returns an error if flags ask for what the model cannot give, and says so if nothing
// asks for it.
func (f *generateFlags) exactness(errOut io.Writer, m *running.TrainedModel) error {
	asks := ""
	switch {
	case f.check:
		asks = "--check"
	case f.logProbs != "":
		asks = "--logprobs"
	}
	switch err := m.CheckExact(); {
	case f.check && f.options.Fast:
		return errors.New("--check compares the bits of training, which --fast does not have: leave out one of them")
	case f.check && f.options.Slide:
		return errors.New("--check needs each text as one sequence: leave out --slide")
	case err != nil && asks != "":
		return fmt.Errorf("%s: %w: leave it out, or generate in another --precision", asks, err)
	case err != nil && !f.options.Fast:
		fmt.Fprintf(errOut, "note: texts are not those of training to the last bit: %v\n", err)
	}
	return nil
}

// logProbLine is a line of --logprobs.
type logProbLine struct {
	Index    int       `json:"index"`    // of the prompt
	Position int       `json:"position"` // of the token in the text, with its prompt
	Token    int32     `json:"token"`
	LogProb  float64   `json:"logprob"`
	Experts  [][]int32 `json:"experts"` // of the token before it: [layers][topK]
}

func writeLogProbs(path string, texts []generate.Text, topK int) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	buffer := bufio.NewWriter(file)
	encoder := json.NewEncoder(buffer)
	for _, t := range texts {
		for i, s := range t.Sampled {
			line := logProbLine{t.Index, t.PromptTokens + i, s.ID, s.LogProb, slices.Collect(slices.Chunk(s.Experts, topK))}
			if err := encoder.Encode(line); err != nil {
				return err
			}
		}
	}
	return buffer.Flush()
}

// checkedSequences is the number of sequences per rank in a pass of --check.
const checkedSequences = 2

// otherRanks returns a number of ranks that the model can have, and has not.
func otherRanks(m *running.TrainedModel) int {
	if m.Ranks > 1 || m.Cfg.Model.MoELayers() > 0 && m.Cfg.Model.Experts%2 != 0 {
		return 1
	}
	return 2
}

// checkLogProbs compares the log-probabilities of all sampled tokens.
func checkLogProbs(ctx context.Context, out io.Writer, m *running.TrainedModel, prompts []string, texts []generate.Text) error {
	all, seq := make([][]int32, len(texts)), 1
	for i, t := range texts {
		all[i] = generate.Encode(m.Tokenizer, prompts[t.Index])
		for _, s := range t.Sampled {
			all[i] = append(all[i], s.ID)
		}
		seq = max(seq, len(all[i])-1)
	}
	ranks := otherRanks(m)
	probs := make([][]float64, len(texts))
	err := m.RunTraining(ranks, seq, func(c *collective.Comm, ex *tensor.Exec, model *moe.Model) error {
		for first := 0; first < len(all); first += ranks * checkedSequences {
			if err := evaluation.Interrupted(ctx, c); err != nil {
				return err
			}
			if err := trainedLogProbs(ex, model, all, probs, first+c.Rank()*checkedSequences, seq, ranks); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return cli.Fail(fmt.Errorf("--check: %w", err), cli.ExitFailed)
	}
	tokens, equal := 0, 0
	for i, t := range texts {
		for n, s := range t.Sampled {
			tokens++
			if math.Float64bits(probs[i][t.PromptTokens-1+n]) == math.Float64bits(s.LogProb) {
				equal++
			}
		}
	}
	text := fmt.Sprintf("%s: %d log-probabilities equal to the last bit; generated on %s, compared with training on %s",
		report.Plural(tokens, "token"), equal, report.Plural(m.Ranks, "rank"), report.Plural(ranks, "rank"))
	if equal < tokens {
		return cli.Fail(errors.New("--check: "+text), cli.ExitFailed)
	}
	fmt.Fprintln(out, text)
	return nil
}

// trainedLogProbs runs the forward pass of a training step over texts from the first on, which are
// padded to seq tokens, and sets the log-probabilities of their tokens. A rank without texts
// computes the last ones again, for the others to meet its tokens.
func trainedLogProbs(ex *tensor.Exec, model *moe.Model, texts [][]int32, probs [][]float64, first, seq, ranks int) error {
	b := moe.Batch{
		Inputs: make([]int32, checkedSequences*seq), Targets: make([]int32, checkedSequences*seq), Unscored: make([]bool, checkedSequences*seq),
		Seq: seq, GlobalSequences: ranks * checkedSequences, LogProbs: make([]float64, checkedSequences*seq),
	}
	for i := range checkedSequences {
		tokens := texts[min(first+i, len(texts)-1)]
		copy(b.Inputs[i*seq:(i+1)*seq], tokens[:len(tokens)-1])
		copy(b.Targets[i*seq:(i+1)*seq], tokens[1:])
		for at := len(tokens) - 1; at < seq; at++ {
			b.Unscored[i*seq+at] = true
		}
	}
	model.ZeroGrad()
	if _, err := model.Forward(ex, b); err != nil {
		return err
	}
	for i := range checkedSequences {
		if first+i < len(texts) {
			probs[first+i] = slices.Clone(b.LogProbs[i*seq : (i+1)*seq])
		}
	}
	return nil
}
