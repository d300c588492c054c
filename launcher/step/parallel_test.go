package step

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"spmoe/moe/reference"
)

// parallel is a run on a mesh of dp 2 and tp 2. Tokens are dealt out so that the ranks with dp 0
// have tokens 0, 3, 4 and 7 of the batch.
func parallel() folder {
	files := folder{"config.json": tiny, "step.json": `{"format": "step-1", "ranks": 4}`}
	for r := range 4 {
		dp, tp := r/2, r%2
		dir, positions := fmt.Sprintf("rank-%d/", r), []string{"[0, 3, 4, 7]", "[1, 2, 5, 6]"}[dp]
		files[dir+"placement.json"] = fmt.Sprintf(`{"mesh": {"dp": 2, "tp": 2}, "coordinate": {"dp": %d, "tp": %d}, "positions": %s, "tensors": {
			"model.layers.0.self_attn.q_a_proj.weight": {"placements": ["Replicate", "Shard(0)"]},
			"model.layers.0.self_attn.q_a_layernorm.weight": {"placements": ["Partial(avg)", "Partial(sum)"]},
			"model.layers.0.self_attn.kv_b_proj.weight": {"dims": ["", ""], "placements": ["_StridedShard(0, sf=2)", "Shard(0)"]},
			"model.layers.1.mlp.experts.down_proj": {"placements": ["Shard(0)", "Shard(2)"]},
			"model.layers.0.self_attn.o_proj.output": {"dims": ["tokens", "hidden"], "placements": ["Shard(0)", "Partial(sum)"]},
			"model.layers.0.output": {"dims": ["sequence", "batch", "hidden"], "placements": ["Replicate", "Shard(0)"]},
			"model.layers.0.input_layernorm.input": {"placements": ["Shard(0)", "Shard(0)"]}}}`, dp, tp, positions)
		files[dir+"batch.safetensors"] = tensors{"input_ids": integers(10*dp, 2, 2), "labels": integers(10*dp, 2, 2)}
		files[dir+"gradients.safetensors"] = tensors{
			"model.layers.0.self_attn.q_a_proj.weight":      numbers(16*tp, 2, 8),
			"model.layers.0.self_attn.q_a_layernorm.weight": numbers(r, 4),
			"model.layers.0.self_attn.kv_b_proj.weight":     numbers(100*(2*tp+dp), 4, 4),
			"model.layers.1.mlp.experts.down_proj":          numbers(1000*r, 2, 8, 2),
			"model.norm.weight":                             numbers(dp, 8),
		}
		files[dir+"activations.safetensors"] = tensors{
			"model.layers.0.self_attn.o_proj.output": numbers(100*dp, 2, 2, 1), "model.layers.0.input_layernorm.input": numbers(10*r, 1, 2, 1), "loss": numbers(7),
			"model.layers.0.output": numbers(10*r, 1, 2, 1),
		}
	}
	return files
}

func TestRanks(t *testing.T) {
	f := parallel().open(t)
	b, err := f.Batch(Repeat{})
	expect(t, "4 2 [0 10 11 1 2 12 13 3] <nil>", b.Batch, b.Seq, b.IDs, err)
	expect(t, "[8 1] [0 200 202 2 4 204 206 6] <nil>", begins(f.Read(Activations, "model.layers.0.self_attn.o_proj.output", Repeat{}))) // summed over tp
	expect(t, "[8 1] [0 20 21 1 10 30 31 11] <nil>", begins(f.Read(Activations, "model.layers.0.input_layernorm.input", Repeat{})))     // tokens split over tp
	expect(t, "[8 1] [0 20 30 10 1 21 31 11] <nil>", begins(f.Read(Activations, "model.layers.0.output", Repeat{})))                    // sequence first
	expect(t, "[] [7] <nil>", begins(f.Read(Activations, "loss", Repeat{})))
	expect(t, "[4 8] [0 1 2 3 4 5 6 7] <nil>", begins(f.Read(Gradients, "model.layers.0.self_attn.q_a_proj.weight", Repeat{})))
	expect(t, "[4] [3 5 7 9] <nil>", begins(f.Read(Gradients, "model.layers.0.self_attn.q_a_layernorm.weight", Repeat{}))) // (0+1 + 2+3)/2
	v, err := f.Read(Gradients, "model.layers.0.self_attn.kv_b_proj.weight", Repeat{})                                     // tp outside, dp inside
	expect(t, "0 100 200 300 <nil>", v.Data[0], v.Data[16], v.Data[32], v.Data[48], err)
	expect(t, "[8 4] [2016 2017 3016 3017 2018 2019 3018 3019] <nil>", begins(f.Read(Gradients, "model.layers.1.mlp.experts.3.down_proj.weight", Repeat{})))
	expect(t, "[] []", f.Findings, f.Incomplete())
	expect(t, "4 2 map[dp:1 tp:0] [[1 2 5 6]]", len(f.Ranks), f.Ranks[2].Number, f.Ranks[2].Coordinate, f.Ranks[2].Tokens)
}

// A gradient that was not reduced over dp differs there, and only there.
func TestReplicas(t *testing.T) {
	f := parallel().open(t)
	expect(t, "[8] [0 1 2 3 4 5 6 7] <nil>", begins(f.Read(Gradients, "model.norm.weight", Repeat{})))
	expect(t, "[{model.norm.weight gradients: ranks 0 and 2 differ by 0.24, but ranks along dp should have the same: "+
		"was it reduced over dp? true}]", f.Findings)
}

// A mesh may name the same ranks twice: ep 2 within dp 2. Experts without a placement are split
// over ep.
func TestAliasedMesh(t *testing.T) {
	files := folder{"config.json": tiny}
	for r := range 2 {
		dir := fmt.Sprintf("rank-%d/", r)
		files[dir+"placement.json"] = fmt.Sprintf(`{"mesh": {"dp": 2, "ep": 2}, "coordinate": {"dp": %d, "ep": %d}, "tokens": %s}`, r, r, []string{"[0, 1, 2, 3]", "[4, 5, 6, 7]"}[r])
		files[dir+"gradients.safetensors"] = tensors{"layers.1.moe.experts.w2": numbers(100*r, 2, 8, 4)}
		files[dir+"batch.safetensors"] = tensors{"input_ids": integers(4*r, 1, 4)}
	}
	f := files.open(t)
	expect(t, "[8 4] [100 101 102 103 104 105 106 107] <nil>", begins(f.Read(Gradients, "model.layers.1.mlp.experts.2.down_proj.weight", Repeat{})))
	b, err := f.Batch(Repeat{})
	expect(t, "2 [0 1 2 3 4 5 6 7] [] <nil>", b.Batch, b.IDs, f.Findings, err)
}

// Sequences are split over cp in zigzag, and layers over pp.
func TestSplitSequences(t *testing.T) {
	files := folder{"config.json": tiny}
	for r := range 4 {
		dir := fmt.Sprintf("rank-%d/", r)
		files[dir+"placement.json"] = fmt.Sprintf(`{"mesh": {"pp": 2, "cp": 2}, "coordinate": {"pp": %d, "cp": %d}, "positions": %s}`, r/2, r%2, []string{"[0, 3]", "[1, 2]"}[r%2])
		files[dir+"activations.safetensors"] = tensors{fmt.Sprintf("model.layers.%d.output", r/2): numbers(10*r, 1, 2, 1)}
		if r < 2 {
			files[dir+"batch.safetensors"] = tensors{"input_ids": integers(10*r, 1, 2), "position_ids": integers(5, 1, 2), "cu_seqlens": integers(0, 3)}
		}
	}
	f := files.open(t)
	expect(t, "[4 1] [20 30 31 21] <nil>", begins(f.Read(Activations, "model.layers.1.output", Repeat{})))
	b, err := f.Batch(Repeat{})
	expect(t, "1 [0 10 11 1] [5 5 6 6] [1 2 3 3] <nil>", b.Batch, b.IDs, b.Positions, b.Documents, err)
}

// Without positions, ranks have the batch in the order of dp.
func TestTokensInOrder(t *testing.T) {
	files := folder{"config.json": tiny}
	for r := range 4 {
		dir := fmt.Sprintf("rank-%d/", r)
		files[dir+"placement.json"] = fmt.Sprintf(`{"mesh": {"tp": 2, "dp": 2}, "coordinate": {"tp": %d, "dp": %d}, "tensors": {
			"model.layers.0.output": {"placements": ["Partial(sum)", "Shard(0)"]}}}`, r/2, r%2)
		files[dir+"activations.safetensors"] = tensors{"model.layers.0.output": numbers(10*r, 1, 2, 1)}
		files[dir+"batch.safetensors"] = tensors{"input_ids": integers(5*(r%2), 1, 2)}
	}
	f := files.open(t)
	expect(t, "[4 1] [20 22 40 42] <nil>", begins(f.Read(Activations, "model.layers.0.output", Repeat{})))
	b, err := f.Batch(Repeat{})
	expect(t, "2 [0 1 5 6] <nil> true", b.Batch, b.IDs, err, says(f, "in the order of their coordinate along dp"))
	for r := range 4 { // the batch is not with the ranks
		delete(files, fmt.Sprintf("rank-%d/batch.safetensors", r))
	}
	files["batch.safetensors"] = tensors{"input_ids": integers(0, 2, 2)}
	f = files.open(t)
	expect(t, "[4 1] [20 22 40 42] <nil>", begins(f.Read(Activations, "model.layers.0.output", Repeat{})))
	files["batch.safetensors"] = tensors{"input_ids": integers(0, 1, 5)} // no parts of one size
	if _, err := Open(files.write(t)); err == nil || !strings.Contains(err.Error(), "the batch has 5 tokens") {
		t.Error(err)
	}
}

// What is missing or does not fit is said.
func TestIncompleteRanks(t *testing.T) {
	files := parallel()
	maps.DeleteFunc(files, func(name string, _ any) bool {
		return strings.HasPrefix(name, "rank-2/") || strings.HasPrefix(name, "rank-3/")
	})
	expect(t, "[2 of 4 ranks]", files.open(t).Incomplete())
	files = parallel()
	for _, rank := range []string{"rank-1", "rank-3"} {
		delete(files[rank+"/gradients.safetensors"].(tensors), "model.layers.0.self_attn.q_a_proj.weight")
	}
	files["rank-3/activations.safetensors"], files["rank-2/activations.safetensors"] = tensors{}, tensors{}
	f := files.open(t)
	if _, err := f.Read(Gradients, "model.layers.0.self_attn.q_a_proj.weight", Repeat{}); err == nil || !strings.Contains(err.Error(), "config.json asks for [4 8]") {
		t.Error(err)
	}
	if _, err := f.Read(Activations, "model.layers.0.self_attn.o_proj.output", Repeat{}); !errors.Is(err, ErrAbsent) || !strings.Contains(err.Error(), "parts of 4 of 8 elements") {
		t.Error(err)
	}
	for bad, text := range map[string]string{
		`{"mesh": {"dp": 2}, "coordinate": {"dp": 2}}`:                                                             "coordinate 2 along dp",
		`{"mesh": {"dp": 2}, "coordinate": {"dp": 0}, "positions": [1]}`:                                           "positions of 1 tokens, but the rank's batch has 4",
		`{"mesh": {"dp": 2}, "coordinate": {"dp": 0}, "tensors": {"x": {"placements": ["Shard"]}}}`:                "expected Replicate",
		`{"mesh": {"cp": 2}, "coordinate": {"cp": 0}}`:                                                             "positions of 0 tokens, but the rank's batch has 4",
		`{"mesh": {"dp": 2}, "coordinate": {"dp": 0}, "tensors": {"x": {"placements": ["Shards"]}}}`:               "expected Replicate",
		`{"mesh": {"dp": 2}, "coordinate": {"dp": 0}, "tensors": {"x": {"placements": ["Shard(0)", "Shard(0)"]}}}`: "2 placements",
	} {
		files := folder{"config.json": tiny, "rank-0/placement.json": bad, "rank-0/batch.safetensors": tensors{"input_ids": integers(0, 1, 4)}}
		if _, err := Open(files.write(t)); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", bad, err)
		}
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
		folder := &Folder{Model: model, Info: Info{MicroBatches: 1}, whole: newRank(0, ""), read: map[key]bool{}, joined: map[key]entry{}}
		for number := range 2 {
			r := newRank(number, "")
			if folder.parsePlacement(r, []byte(strings.Replace(text, `"dp": 0`, fmt.Sprintf(`"dp": %d`, number), 1))) != nil {
				return
			}
			for k, dims := range map[key][]int{idsOf(0): {1, 2}, key{Activations, "x", Repeat{}}: {rows & 7, columns & 7}, key{Gradients, "x", Repeat{}}: {rows & 7, number + 1}} {
				r.tensors[k] = entry{view: rowMajor(dims), dtype: "U8", read: func(p []byte, off int64) error { copy(p, []byte{byte(number)}); return nil }}
			}
			folder.Ranks = append(folder.Ranks, r)
		}
		if folder.placeBatch() != nil {
			return
		}
		for _, class := range []Class{Activations, Gradients} {
			if v, err := folder.Read(class, "x", Repeat{}); err == nil && len(v.Data) != product(v.Dims) {
				t.Errorf("%d elements of %v", len(v.Data), v.Dims)
			}
		}
		folder.Batch(Repeat{})
		folder.Incomplete()
	})
}
