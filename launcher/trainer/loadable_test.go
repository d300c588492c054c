package trainer

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/state"
)

// A checkpoint of a version that averaged the weights loads, and the run goes on as if it had never
// averaged them.
func TestResumeWithoutAverage(t *testing.T) {
	t.Parallel()
	cfg := tiny(t, func(c *config.Config) { c.SaveEvery, c.Keep = 2, 9 })
	train(t, cfg, 1, "")
	r, err := checkpoint.Open(filepath.Join(cfg.Out, "step-00000002"))
	if err != nil {
		t.Fatal(err)
	}
	var meta json.RawMessage
	text, shapes := append([]byte("ema = 0.9\n"), r.ConfigTOML()...), r.Tensors()
	if err := errors.Join(r.Meta(&meta), r.Close()); err != nil {
		t.Fatal(err)
	}
	_, tensors := savedProgress(t, cfg, 2)
	var pieces []checkpoint.Piece
	for name, data := range tensors {
		pieces = append(pieces, checkpoint.Piece{Name: name, Shape: shapes[name], Data: data})
		if weight, ok := strings.CutPrefix(name, "master/"); ok {
			pieces = append(pieces, checkpoint.Piece{Name: "ema/" + weight, Shape: shapes[name], Data: make([]float32, len(data))})
		}
	}
	again := cfg
	again.Out = t.TempDir()
	w, err := checkpoint.NewWriter(checkpoint.Disk{}, again.Out, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	w.Run, w.Checks = r.Run(), []func(*checkpoint.Reader) error{state.CheckState}
	sums := checkpoint.Sums{}
	for _, p := range pieces {
		sums[checkpoint.Kind(p.Name)] += p.Sum()
	}
	if err := errors.Join(w.WriteShard(0, pieces, sums), w.Commit(meta, text), w.Abort()); err != nil {
		t.Fatal(err)
	}
	train(t, again, 2, again.Out)
	sameState(t, "resumed without its average", again, cfg, cfg.Steps)
}

// A checkpoint whose tensors are not those of its configuration is not committed. If it is there
// nevertheless, a run continues from the one before.
func TestTensorsOfAnotherModel(t *testing.T) {
	t.Parallel()
	cfg := tiny(t, func(c *config.Config) { c.Steps, c.SaveEvery, c.Keep = 2, 1, 9 })
	train(t, cfg, 1, "")
	last := filepath.Join(cfg.Out, "step-00000002")
	r, err := checkpoint.Open(last)
	if err != nil {
		t.Fatal(err)
	}
	var meta json.RawMessage
	text, shapes, run := r.ConfigTOML(), r.Tensors(), r.Run()
	if err := errors.Join(r.Meta(&meta), r.Close()); err != nil {
		t.Fatal(err)
	}
	_, tensors := savedProgress(t, cfg, 2)
	const missing = "exp_avg_sq/model.layers.1.mlp.experts.2.down_proj.weight"
	var pieces []checkpoint.Piece
	for name, data := range tensors {
		if name != missing {
			pieces = append(pieces, checkpoint.Piece{Name: name, Shape: shapes[name], Data: data})
		}
	}
	for _, checks := range [][]func(*checkpoint.Reader) error{{state.CheckState}, nil} {
		w, err := checkpoint.NewWriter(checkpoint.Disk{}, cfg.Out, 2, 1)
		if err != nil {
			t.Fatal(err)
		}
		w.Run, w.Checks = run, checks
		err = errors.Join(w.WriteShard(0, pieces, nil), w.Commit(meta, text), w.Abort())
		if (checks != nil) != errors.Is(err, checkpoint.ErrChanged) || (checks != nil) != (err != nil) {
			t.Errorf("%d checks: %v", len(checks), err)
		}
	}
	got := &reports{}
	cfg.Steps = 3
	job, err := Prepare(cfg, 1, cfg.Out, got)
	if err != nil {
		t.Fatal(err)
	}
	defer job.Close()
	if job.progress.Step != 1 || len(got.alarms) != 1 || !strings.Contains(got.alarms[0].Text, missing) {
		t.Errorf("from step %d: %v", job.progress.Step, got.alarms)
	}
}
