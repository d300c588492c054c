package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/cli"
)

// A folder that cannot be checked ends with code 2 and a message that names what is wrong.
func TestCheckBadFolder(t *testing.T) {
	remove := func(name string) func(string) {
		return func(dir string) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	tensors := func(file string, change func(map[string]safetensors.Tensor)) func(string) {
		return func(dir string) { edit(t, filepath.Join(dir, file+".safetensors"), change) }
	}
	drop := func(name string) func(map[string]safetensors.Tensor) {
		return func(all map[string]safetensors.Tensor) { delete(all, name) }
	}
	shape := func(name string, dims ...int) func(map[string]safetensors.Tensor) {
		return func(all map[string]safetensors.Tensor) { x := all[name]; x.Shape = dims; all[name] = x }
	}
	cut := func(name string, dims ...int) func(map[string]safetensors.Tensor) {
		return func(all map[string]safetensors.Tensor) {
			x, n := all[name], 4
			for _, d := range dims {
				n *= d
			}
			x.Shape, x.Data = dims, x.Data[:n]
			all[name] = x
		}
	}
	dtype := func(name, dtype string) func(map[string]safetensors.Tensor) {
		return func(all map[string]safetensors.Tensor) { x := all[name]; x.DType = dtype; all[name] = x }
	}
	token := func(name string) func(map[string]safetensors.Tensor) {
		return func(all map[string]safetensors.Tensor) { binary.LittleEndian.PutUint32(all[name].Data[20:], 512) }
	}
	replace := func(file, from, to string) func(string) {
		return func(dir string) {
			path := filepath.Join(dir, file)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			changed := strings.Replace(string(data), from, to, 1)
			if changed == string(data) {
				t.Fatalf("%s has no %q", file, from)
			}
			write(t, path, changed)
		}
	}
	const down = "model.layers.1.mlp.experts.9.down_proj.weight"
	for name, c := range map[string]struct {
		change func(dir string)
		np     string
		want   []string
	}{
		"no config":           {remove("config.json"), "1", []string{"not a golden folder", "config.json", "expected"}},
		"no model":            {remove("model.safetensors"), "1", []string{"not a golden folder", "model.safetensors"}},
		"no activations":      {remove("activations.safetensors"), "1", []string{"not a golden folder", "activations.safetensors"}},
		"no tokens":           {remove("train_tokens.safetensors"), "1", []string{"train_tokens.safetensors"}},
		"broken config":       {func(dir string) { write(t, filepath.Join(dir, "config.json"), "{") }, "1", []string{"config.json"}},
		"foreign model":       {replace("config.json", "deepseek_v3", "llama"), "1", []string{"model_type", `"llama"`, "deepseek_v3"}},
		"impossible model":    {replace("config.json", `"vocab_size": 512`, `"vocab_size": 0`), "1", []string{"vocab"}},
		"model is no tensors": {func(dir string) { write(t, filepath.Join(dir, "model.safetensors"), "hello, world") }, "1", []string{"model.safetensors", "header"}},
		"missing parameter":   {tensors("model", drop(down)), "2", []string{"no tensor", down, "[64 32]"}},
		"wrong parameter":     {tensors("model", shape(down, 32, 64)), "2", []string{down, "[32 64]", "[64 32]"}},
		"integer parameter":   {tensors("model", dtype("lm_head.weight", safetensors.I32)), "1", []string{"lm_head.weight", "I32"}},
		"wrong gradient":      {tensors("gradients", shape(down, 32, 64)), "2", []string{"gradients.safetensors", down, "[32 64]"}},
		"no input":            {tensors("activations", drop("input_ids")), "1", []string{"input_ids is missing"}},
		"no target":           {tensors("activations", drop("target_ids")), "1", []string{"target_ids is missing"}},
		"flat input":          {tensors("activations", shape("input_ids", 96)), "1", []string{"input_ids has shape [96]", "[batch, seq]"}},
		"empty input": {func(dir string) {
			tensors("activations", cut("input_ids", 0, 48))(dir)
			tensors("activations", cut("target_ids", 0, 48))(dir)
		}, "1", []string{"not empty"}},
		"float input":          {tensors("activations", dtype("input_ids", safetensors.F32)), "1", []string{"input_ids", "F32"}},
		"foreign input token":  {tensors("activations", token("input_ids")), "1", []string{"input_ids: token 512 at position 5", "vocabulary of 512"}},
		"foreign target token": {tensors("activations", token("target_ids")), "1", []string{"target_ids: token 512"}},
		"narrow activation":    {tensors("activations", cut("layer1_out", 2, 48, 32)), "2", []string{"layer1_out", "[2 48 32]", "64 for each of 96 tokens"}},
		"odd activation":       {tensors("activations", cut("layer1_out", 5)), "2", []string{"layer1_out", "[5]"}},
		"fewer choices":        {tensors("activations", cut("layer1_topk_index", 96, 2)), "2", []string{"layer1_topk_index", "[96 2]", "4 for each"}},
		"float choices":        {tensors("activations", dtype("layer1_topk_index", safetensors.F32)), "2", []string{"layer1_topk_index is F32", "int32"}},
		"integer activation":   {tensors("activations", dtype("layer1_out", safetensors.I32)), "2", []string{"layer1_out is I32", "fp32"}},
		"two losses": {tensors("activations", func(all map[string]safetensors.Tensor) {
			all["loss"] = safetensors.Tensor{DType: safetensors.F32, Shape: []int{2}, Data: make([]byte, 8)}
		}), "1", []string{"loss: one number"}},
		"no training tokens":   {tensors("train_tokens", func(all map[string]safetensors.Tensor) { all["ids"] = all["tokens"]; delete(all, "tokens") }), "1", []string{"train_tokens.safetensors", "tokens is missing"}},
		"few training tokens":  {tensors("train_tokens", cut("tokens", 39, 2, 17)), "1", []string{"[39 2 17]", "at least 40 steps"}},
		"training token":       {tensors("train_tokens", token("tokens")), "1", []string{"token 512", "vocabulary"}},
		"trajectory":           {replace("train_trajectory.json", "{", "["), "1", []string{"train_trajectory.json"}},
		"trajectory, no steps": {func(dir string) { write(t, filepath.Join(dir, "train_trajectory.json"), "{}") }, "1", []string{"train_trajectory.json", "no steps"}},
		"trajectory's AdamW":   {replace("train_trajectory.json", "0.95", "1.95"), "1", []string{"train_trajectory.json", "beta2"}},
		"ranks":                {func(string) {}, "3", []string{"-np 3", "16 experts", "1, 2, 4, 8 or 16"}},
		"no ranks":             {func(string) {}, "0", []string{"-np is 0", "1 or more"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copied(t, goldenV3)
			c.change(dir)
			refuse(t, cli.ExitUsage, []string{"-np", c.np, "check", dir}, c.want...)
		})
	}
	refuse(t, cli.ExitUsage, []string{"check", "golden/nowhere"}, "not a golden folder", "golden/nowhere")
	refuse(t, cli.ExitUsage, []string{"check", "main.go"}, "not a golden folder", "main.go")
}
