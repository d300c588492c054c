package step

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"spmoe/moe/reference"
)

// parallel is a run on a mesh of dp 2 and tp 2. Sequences of four tokens are dealt out so that rank
// 0 has tokens 0, 3, 4, 7 of the batch.
func parallel() folder {
	files := folder{"config.json": tiny, "step.json": `{"format": "step-1", "ranks": 4}`}
	for r := range 4 {
		dp, tp := r/2, r%2
		positions := []string{"[0, 3, 4, 7]", "[1, 2, 5, 6]"}[dp]
		files[fmt.Sprintf("rank-%d/placement.json", r)] = fmt.Sprintf(`{"mesh": {"dp": 2, "tp": 2}, "coordinate": {"dp": %d, "tp": %d},
			"positions": %s, "tensors": {
			"model.layers.0.self_attn.q_a_proj.weight": {"placements": ["Replicate", "Shard(0)"]},
			"model.layers.0.self_attn.q_a_layernorm.weight": {"placements": ["Partial(avg)", "Partial(sum)"]},
			"model.layers.0.self_attn.kv_b_proj.weight": {"placements": ["_StridedShard(0, sf=2)", "Shard(0)"]},
			"model.layers.1.mlp.experts.down_proj": {"placements": ["Shard(0)", "Shard(2)"]},
			"model.layers.0.self_attn.o_proj.output": {"dims": ["tokens", "hidden"], "placements": ["Shard(0)", "Partial(sum)"]},
			"model.layers.0.input_layernorm.input": {"placements": ["Shard(0)", "Shard(0)"]}}}`, dp, tp, positions)
		ids := []int{0, 10}[dp]
		files[fmt.Sprintf("rank-%d/batch.safetensors", r)] = tensors{"input_ids": integers(ids, 2, 2), "labels": integers(ids, 2, 2)}
		files[fmt.Sprintf("rank-%d/gradients.safetensors", r)] = tensors{
			"model.layers.0.self_attn.q_a_proj.weight":      numbers(16*tp, 2, 8),
			"model.layers.0.self_attn.q_a_layernorm.weight": numbers(r, 4),
			"model.layers.0.self_attn.kv_b_proj.weight":     numbers(100*(2*tp+dp), 4, 4),
			"model.layers.1.mlp.experts.down_proj":          numbers(1000*r, 2, 8, 2),
			"model.norm.weight":                             numbers(dp, 8),
		}
		files[fmt.Sprintf("rank-%d/activations.safetensors", r)] = tensors{
			"model.layers.0.self_attn.o_proj.output": numbers(100*dp, 2, 2, 1), "model.layers.0.input_layernorm.input": numbers(10*r, 1, 2, 1),
			"loss": numbers(7),
		}
	}
	return files
}

func TestRanks(t *testing.T) {
	f := parallel().open(t)
	b, err := f.Batch(Repeat{})
	if err != nil || b.Batch != 4 || b.Seq != 2 || fmt.Sprint(b.IDs) != "[0 10 11 1 2 12 13 3]" {
		t.Errorf("%+v %v", b, err)
	}
	v, err := f.Activation("model.layers.0.self_attn.o_proj.output") // summed over tp
	expect(t, v, err, []int{8, 1}, 0, 200, 202, 2, 4, 204, 206, 6)
	v, err = f.Activation("model.layers.0.input_layernorm.input") // split by tokens over tp
	expect(t, v, err, []int{8, 1}, 0, 20, 21, 1, 10, 30, 31, 11)
	v, err = f.Activation("loss")
	expect(t, v, err, []int{}, 7)
	v, err = f.Gradient("model.layers.0.self_attn.q_a_proj.weight")
	if err != nil || v.Data[31] != 31 {
		t.Error(v, err)
	}
	v, err = f.Gradient("model.layers.0.self_attn.q_a_layernorm.weight") // (0+1 + 2+3)/2
	expect(t, v, err, []int{4}, 3, 5, 7, 9)
	v, err = f.Gradient("model.layers.0.self_attn.kv_b_proj.weight") // tp outside, dp inside
	if err != nil || v.Data[0] != 0 || v.Data[16] != 100 || v.Data[32] != 200 || v.Data[48] != 300 {
		t.Error(v, err)
	}
	v, err = f.Gradient("model.layers.1.mlp.experts.3.down_proj.weight") // of ranks 2 and 3
	if err != nil || fmt.Sprint(v.Dims) != "[8 4]" || v.Data[0] != 2016 || v.Data[2] != 3016 {
		t.Error(v, err)
	}
	if len(f.Findings()) > 50 || says(f, "differ") {
		t.Error(f.Findings())
	}
	tokens := f.RankTokens(Repeat{})
	if len(tokens) != 4 || fmt.Sprint(tokens[2].Tokens) != "[1 2 5 6]" || tokens[3].Coordinate["dp"] != 1 {
		t.Error(tokens)
	}
}

// A gradient that was not reduced over dp differs there, and only there.
func TestReplicas(t *testing.T) {
	f := parallel().open(t)
	v, err := f.Gradient("model.norm.weight")
	expect(t, v, err, []int{8}, 0, 1, 2, 3, 4, 5, 6, 7)
	if !says(f, "model.norm.weight: gradients: ranks 0 and 2 differ by 0.24, but ranks along dp should have the same") {
		t.Error(f.Findings())
	}
}

// A mesh may name the same ranks twice: ep 2 within dp 2. Without positions, sequences follow the
// ranks.
func TestAliasedMesh(t *testing.T) {
	files := folder{"config.json": tiny}
	for r := range 2 {
		files[fmt.Sprintf("rank-%d/placement.json", r)] = fmt.Sprintf(`{"mesh": {"dp": 2, "ep": 2}, "coordinate": {"dp": %d, "ep": %d}, "tensors": {
			"layers.1.moe.experts.w2": {"placements": ["Replicate", "Shard(0)"]}}}`, r, r)
		files[fmt.Sprintf("rank-%d/gradients.safetensors", r)] = tensors{"layers.1.moe.experts.w2": numbers(100*r, 2, 8, 4)}
		files[fmt.Sprintf("rank-%d/batch.safetensors", r)] = tensors{"input_ids": integers(4*r, 1, 4)}
	}
	f := files.open(t)
	v, err := f.Gradient("model.layers.1.mlp.experts.2.down_proj.weight")
	if err != nil || v.Data[0] != 100 || says(f, "differ") {
		t.Error(v, err, f.Findings())
	}
	if b, err := f.Batch(Repeat{}); err != nil || fmt.Sprint(b.IDs) != "[0 1 2 3 4 5 6 7]" || b.Batch != 2 {
		t.Error(b, err)
	}
}

// What is missing or does not fit is said.
func TestIncompleteRanks(t *testing.T) {
	files := parallel()
	maps.DeleteFunc(files, func(name string, _ any) bool {
		return strings.HasPrefix(name, "rank-2/") || strings.HasPrefix(name, "rank-3/")
	})
	f := files.open(t)
	if got := f.Incomplete(); !slices.Equal(got, []string{"2 of 4 ranks"}) {
		t.Error(got)
	}
	files = parallel()
	for _, rank := range []string{"rank-1", "rank-3"} {
		delete(files[rank+"/gradients.safetensors"].(tensors), "model.layers.0.self_attn.q_a_proj.weight")
	}
	files["rank-3/activations.safetensors"] = tensors{"model.layers.0.input_layernorm.input": numbers(0, 1, 1, 1)}
	files["rank-2/activations.safetensors"] = tensors{}
	f = files.open(t)
	_, err := f.Gradient("model.layers.0.self_attn.q_a_proj.weight")
	if err == nil || !strings.Contains(err.Error(), "is [2 8]: config.json asks for [4 8]") {
		t.Error(err)
	}
	if _, err = f.Activation("model.layers.0.self_attn.o_proj.output"); !errors.Is(err, ErrAbsent) || !strings.Contains(err.Error(), "4 of 8 tokens") {
		t.Error(err)
	}
	for bad, text := range map[string]string{
		`{"mesh": {"dp": 2}, "coordinate": {"dp": 2}}`:                                                             "coordinate 2 along dp",
		`{"mesh": {"dp": 2}, "coordinate": {"dp": 0}, "positions": [1]}`:                                           "positions of 1 tokens: the rank's batch has 4",
		`{"mesh": {"cp": 2}, "coordinate": {"cp": 0}}`:                                                             "sequences are split over cp",
		`{"mesh": {"dp": 2}, "coordinate": {"dp": 0}, "tensors": {"x": {"placements": ["Shards"]}}}`:               "expected Replicate",
		`{"mesh": {"dp": 2}, "coordinate": {"dp": 0}, "tensors": {"x": {"placements": ["Shard(sum)"]}}}`:           "expected Replicate",
		`{"mesh": {"dp": 2}, "coordinate": {"dp": 0}, "tensors": {"x": {"placements": ["Shard(0)", "Shard(0)"]}}}`: "2 placements",
	} {
		files := folder{"config.json": tiny, "rank-0/placement.json": bad, "rank-0/batch.safetensors": tensors{"input_ids": integers(0, 1, 4)}}
		if _, err := Open(files.write(t)); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestSplits joins what context parallelism (zigzag), a pipeline and expert parallelism split.
func TestSplits(t *testing.T) {
	files := folder{"config.json": tiny}
	for r, text := range []string{
		`{"mesh": {"pp": 2, "cp": 2}, "coordinate": {"pp": 0, "cp": 0}, "positions": [0, 3]}`,
		`{"mesh": {"pp": 2, "cp": 2}, "coordinate": {"pp": 0, "cp": 1}, "positions": [1, 2]}`,
		`{"mesh": {"pp": 2, "cp": 2}, "coordinate": {"pp": 1, "cp": 0}, "positions": [0, 3]}`,
		`{"mesh": {"pp": 2, "cp": 2}, "coordinate": {"pp": 1, "cp": 1}, "positions": [1, 2]}`,
	} {
		dir := fmt.Sprintf("rank-%d/", r)
		files[dir+"placement.json"] = text
		files[dir+"activations.safetensors"] = tensors{fmt.Sprintf("model.layers.%d.output", r/2): numbers(10*r, 1, 2, 1)}
		if r < 2 {
			files[dir+"batch.safetensors"] = tensors{"input_ids": integers(10*r, 1, 2), "position_ids": integers(5, 1, 2), "cu_seqlens": integers(0, 3)}
		}
	}
	f := files.open(t)
	v, err := f.Activation("model.layers.1.output")
	expect(t, v, err, []int{4, 1}, 20, 30, 31, 21)
	b, err := f.Batch(Repeat{})
	if err != nil || b.Batch != 1 || fmt.Sprint(b.IDs, b.Positions, b.Documents) != "[0 10 11 1] [5 5 6 6] [1 2 3 3]" {
		t.Error(b, err)
	}
	files = folder{"config.json": tiny}
	for r := range 2 {
		dir := fmt.Sprintf("rank-%d/", r)
		files[dir+"placement.json"] = fmt.Sprintf(`{"mesh": {"ep": 2}, "coordinate": {"ep": %d}}`, r)
		files[dir+"gradients.safetensors"] = tensors{"model.layers.1.mlp.experts.gate_up_proj": numbers(128*r, 2, 8, 8)}
		files[dir+"batch.safetensors"] = tensors{"input_ids": integers(0, 1, 4)}
	}
	f = files.open(t)
	v, err = f.Gradient("model.layers.1.mlp.experts.3.gate_proj.weight")
	if err != nil || v.Data[0] != 3*64 || says(f, "differ") {
		t.Error(v, err, f.Findings())
	}
}

// FuzzPlacement joins tensors of two ranks under any placement.
func FuzzPlacement(f *testing.F) {
	f.Add(`{"mesh": {"dp": 2}, "coordinate": {"dp": 0}, "positions": [0, 1], "tensors": {"x": {"placements": ["Shard(1)"]}}}`, 2, 4)
	f.Add(`{"mesh": {"dp": 2, "tp": 1}, "coordinate": {"dp": 0, "tp": 0}, "tensors": {"x": {"placements": ["Partial(avg)", "_StridedShard(0, sf=2)"]}}}`, 1, 8)
	model, err := reference.ReadConfig([]byte(tiny))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string, rows, columns int) {
		folder := &Folder{Model: model, Info: Info{MicroBatches: 1}, whole: newRank(0, ""), read: map[key]bool{}, joined: map[key]Value{}}
		for number := range 2 {
			r := newRank(number, "")
			if folder.readPlacement([]byte(strings.Replace(text, `"dp": 0`, fmt.Sprintf(`"dp": %d`, number), 1)), r) != nil {
				return
			}
			for k, dims := range map[key][]int{idsOf(0): {1, 2}, folder.key(Activations, "x"): {rows & 7, columns & 7}, folder.key(Gradients, "x"): {rows & 7, number + 1}} {
				read := func(p []byte, off int64) error { p[0] = byte(number); return nil }
				r.tensors[k] = entry{rowMajor(dims), "x", "U8", func(p []byte, off int64) error { return read(append(p, 0), off) }}
			}
			folder.splitBatch(r)
			folder.ranks = append(folder.ranks, r)
		}
		if folder.placeTokens(0) != nil {
			return
		}
		for _, class := range []Class{Activations, Gradients, batchClass} {
			if v, err := folder.load(folder.key(class, "x"), nil); err == nil && len(v.Data) != product(v.Dims) {
				t.Errorf("%d elements of %v", len(v.Data), v.Dims)
			}
		}
		folder.Batch(Repeat{})
		folder.Incomplete()
	})
}
