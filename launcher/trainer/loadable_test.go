package trainer

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/state"
)

// A checkpoint whose tensors are not those of its configuration is not committed. If it is there
// nevertheless, it does not verify, and a run continues from the one before.
func TestTensorsOfAnotherModel(t *testing.T) {
	t.Parallel()
	cfg := tiny(t, func(c *config.Config) { c.Steps, c.SaveEvery, c.Keep = 2, 1, 9 })
	train(t, cfg, 1, "")
	last := filepath.Join(cfg.Out, "step-00000002")
	const name = "model.layers.1.mlp.experts.2.down_proj.weight"
	r, err := checkpoint.Open(last)
	if err != nil {
		t.Fatal(err)
	}
	var meta json.RawMessage
	text, shapes, run := r.ConfigTOML(), r.Tensors(), r.Run()
	if err := errors.Join(r.Meta(&meta), r.Close()); err != nil || shapes["master/"+name] == nil {
		t.Fatal(err, shapes)
	}
	_, tensors := savedProgress(t, cfg, 2)
	rows := shapes["master/"+name][0]
	for want, change := range map[string]func(p *checkpoint.Piece) (save bool){
		fmt.Sprintf("has shape [%d %d], expected [%d %[2]d]", rows+1, shapes["master/"+name][1], rows): func(p *checkpoint.Piece) bool {
			if strings.HasSuffix(p.Name, "/"+name) { // as all vectors of a parameter whose shape has changed
				p.Shape = []int{rows + 1, p.Shape[1]}
				p.Data = append(p.Data, make([]float32, p.Shape[1])...)
			}
			return true
		},
		`"exp_avg/` + name + `": no rank has saved element 7`: func(p *checkpoint.Piece) bool {
			if p.Name == "exp_avg/"+name {
				p.Data = p.Data[:7]
			}
			return true
		},
		`"master/` + name + `" is BF16, expected F32`: func(p *checkpoint.Piece) bool {
			if p.Name == "master/"+name {
				p.Data, p.BF16 = nil, make([]byte, 2*len(p.Data))
			}
			return true
		},
		`tensor "exp_avg_sq/` + name + `" is missing`: func(p *checkpoint.Piece) bool { return p.Name != "exp_avg_sq/"+name },
		`tensor "momentum/` + name + `" is not expected`: func(p *checkpoint.Piece) bool {
			p.Name = strings.Replace(p.Name, "exp_avg/"+name, "momentum/"+name, 1)
			return true
		},
	} {
		var pieces []checkpoint.Piece
		for tensor, data := range tensors {
			p := checkpoint.Piece{Name: tensor, Shape: shapes[tensor], Data: data[:len(data):len(data)]}
			if change(&p) {
				pieces = append(pieces, p)
			}
		}
		for _, checks := range []bool{true, false} {
			w, err := checkpoint.NewWriter(checkpoint.Disk{}, cfg.Out, 2, 1)
			if err != nil {
				t.Fatal(err)
			}
			if w.Run = run; checks {
				w.Checks = []func(*checkpoint.Reader) error{state.CheckState}
			}
			err = errors.Join(w.WriteShard(0, pieces, nil), w.Commit(meta, text), w.Abort())
			if checks != errors.Is(err, checkpoint.ErrChanged) || checks != (err != nil) || checks && !strings.Contains(err.Error(), want) {
				t.Errorf("checked %t: %v, want %q", checks, err, want)
			}
		}
		again := cfg
		again.Steps = 3
		if _, err := Prepare(again, 1, last, &reports{}); !errors.Is(err, checkpoint.ErrDamaged) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		got := &reports{}
		job, err := Prepare(again, 1, cfg.Out, got)
		if err != nil {
			t.Fatal(err)
		}
		if job.progress.Step != 1 || len(got.alarms) != 1 || !strings.Contains(got.alarms[0].Text, want) {
			t.Errorf("from step %d: %v, want one alarm with %q", job.progress.Step, got.alarms, want)
		}
		if err := job.Close(); err != nil {
			t.Error(err)
		}
	}
}

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
