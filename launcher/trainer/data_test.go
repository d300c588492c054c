package trainer

// What a run reads: documents kept apart, token files, mixtures.

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/collective/mesh"
	"spmoe/launcher/record"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
)

// shortRows writes a JSONL file of documents that are shorter than a sequence.
func shortRows(t *testing.T, seed uint64) string {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 2))
	var b strings.Builder
	for b.Len() < 30000 {
		fmt.Fprintf(&b, "{\"body\":\"%d\"}\n", rng.Uint64()>>rng.IntN(60))
	}
	path := filepath.Join(t.TempDir(), fmt.Sprintf("rows-%d.jsonl", seed))
	if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func onRows(t *testing.T, data ...string) config.Config {
	return tiny(t, func(c *config.Config) {
		c.Steps, c.Seq, c.EvalSequences, c.Data, c.DataField = 3, 96, 8, data, "body"
		c.Model.Experts, c.Model.MTPLayers = 8, 1
	})
}

// TestDataTrains: from a mixture of rows, and with attention that stops at documents, a run has one
// result on all ranks and after a resume. The mask changes it, unless all text is one document.
func TestDataTrains(t *testing.T) {
	t.Parallel()
	places := onOneHost(mesh.Default(4), mesh.Default(1), mesh.Default(8))
	mixture := []string{shortRows(t, 1) + "@0.8", shortRows(t, 2) + "@0.2"}
	for _, mask := range []bool{false, true} {
		run := func() config.Config {
			cfg := onRows(t, mixture...)
			cfg.DocumentMask = mask
			return cfg
		}
		sameBits(t, run, places)
		resumesAnywhere(t, run, places)
		open, whole := run(), tiny(t, func(c *config.Config) { c.Steps, c.DocumentMask = 2, mask })
		open.DocumentMask = false
		if changes := outcomeOf(t, open, 2).state != outcomeOf(t, run(), 2).state; changes != mask {
			t.Errorf("with mask %t, a run of other bits than without: %t", mask, changes)
		}
		plain := whole
		plain.DocumentMask = false
		outcomeOf(t, whole, 2).equals(t, "one document", outcomeOf(t, plain, 2))
	}
}

// TestNewData: a run goes on with other data, a mixture here, from that data's start and with the
// optimizer's state, in every layout; later it resumes there. The weights of this run never change,
// so losses tell which rows a step has read.
func TestNewData(t *testing.T) {
	t.Parallel()
	first, other := []string{shortRows(t, 1)}, []string{shortRows(t, 2) + "@0.7", shortRows(t, 3) + "@0.3"}
	frozen := func(data []string, steps int) config.Config {
		cfg := onRows(t, data...)
		cfg.Steps, cfg.SaveEvery, cfg.Keep, cfg.Optimizer.LR, cfg.Model.BiasSpeed = steps, 1, 9, 1e-30, 0
		return cfg
	}
	alone := train(t, frozen(other, 4), 1, "")
	begun := frozen(first, 3)
	train(t, begun, 2, "")
	from := filepath.Join(begun.Out, "step-00000003")
	goOn := func(cfg config.Config, ranks int, resume string, newData bool) (*reports, error) {
		r := &reports{}
		job, err := PrepareOn(cfg, ranks, estimate.Goroutines(ranks), resume, Text{New: newData}, r)
		if err != nil {
			return nil, err
		}
		return r, job.Run(t.Context(), spmd.Goroutines{N: ranks})
	}
	var checksum string
	for _, ranks := range []int{1, 4, 2} {
		cfg := begun
		cfg.Steps, cfg.Data, cfg.Out = 7, other, t.TempDir()
		if _, err := goOn(cfg, ranks, from, false); err == nil || !strings.Contains(err.Error(), "add --allow-changes to --data to go on with this data from its start") {
			t.Fatalf("not asked for: %v", err)
		}
		r, err := goOn(cfg, ranks, from, true)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range r.steps {
			if want := alone.steps[i]; s.Step != i+4 || s.Loss != want.Loss || s.Epoch != want.Epoch {
				t.Errorf("np %d, step %d: loss %v in epoch %v, want %v in %v", ranks, s.Step, s.Loss, s.Epoch, want.Loss, want.Epoch)
			}
		}
		if e := r.evals[0]; len(r.steps) != 4 || e.Step != 3 || e.Loss != alone.evals[0].Loss || !strings.Contains(fmt.Sprint(r.start.Notes), "other data from step 4 on") {
			t.Errorf("np %d: %d steps, first evaluation %+v, want that of the new data; notes %v", ranks, len(r.steps), e, r.start.Notes)
		}
		p, tensors := savedProgress(t, cfg, 7)
		if checksum == "" {
			checksum = fmt.Sprint(tensors)
		}
		log, err := record.Read(cfg.Out)
		if err != nil || !strings.HasPrefix(log.Starts[0].NewData, "other data from step 4 on") || fmt.Sprint(tensors) != checksum || p.Loader.Start != 24 || p.Before.Pos != 24 {
			t.Errorf("np %d: the record says %+v (%v), progress %+v", ranks, log.Starts, err, p)
		}
		// Without a word, the run goes on in the new data. That of the beginning is refused.
		middle := filepath.Join(cfg.Out, "step-00000005")
		again := train(t, cfg, 2, middle)
		if got, want := again.steps[0], r.steps[2]; got.Step != 6 || got.Loss != want.Loss || len(again.steps) != 2 || strings.Contains(fmt.Sprint(again.start.Notes), "other data") {
			t.Errorf("np %d: resumed at step %d with loss %v, want %v; notes %v", ranks, got.Step, got.Loss, want.Loss, again.start.Notes)
		}
		cfg.Data = first
		if _, err := goOn(cfg, ranks, middle, false); err == nil || !strings.Contains(err.Error(), "the run left this data after 24 sequences: leave --data out") {
			t.Errorf("back to the first data: %v", err)
		}
	}
}
