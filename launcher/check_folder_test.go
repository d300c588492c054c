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

// A folder that cannot be read, or holds tensors that do not fit, is no success. The messages name
// what is wrong.
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
		want   []string
	}{
		"no config":           {remove("config.json"), []string{"config.json"}},
		"foreign model":       {replace("config.json", "deepseek_v3", "llama"), []string{"model_type", `"llama"`, "deepseek_v3"}},
		"impossible model":    {replace("config.json", `"vocab_size": 512`, `"vocab_size": 0`), []string{"vocab_size"}},
		"model is no tensors": {func(dir string) { write(t, filepath.Join(dir, "model.safetensors"), "hello, world") }, []string{"model.safetensors"}},
		"missing parameter":   {tensors("model", drop(down)), []string{down}},
		"wrong parameter":     {tensors("model", shape(down, 32, 64)), []string{down, "[32 64]", "[64 32]"}},
		"wrong gradient":      {tensors("gradients", shape(down, 32, 64)), []string{down, "[32 64]", "[64 32]"}},
		"no input":            {tensors("activations", drop("input_ids")), []string{"input_ids"}},
		"foreign input token": {tensors("activations", token("input_ids")), []string{"input_ids", "0 to 511"}},
		"narrow activation":   {tensors("activations", cut("layer1_out", 2, 48, 32)), []string{"model.layers.2.input", "3072"}},
		"fewer choices":       {tensors("activations", cut("layer1_topk_index", 96, 2)), []string{"model.layers.1.mlp.gate.indices"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copied(t, goldenV3)
			c.change(dir)
			got := launch("check", dir)
			if got.code == cli.ExitOK {
				t.Errorf("exit code %d", got.code)
			}
			for _, want := range c.want {
				if !strings.Contains(strings.Join(strings.Fields(got.out+got.errOut), " "), want) {
					t.Errorf("the messages lack %q:\n%s\n%s", want, got.out, got.errOut)
				}
			}
		})
	}
	refuse(t, cli.ExitUsage, []string{"check", "golden/nowhere"}, "golden/nowhere")
	refuse(t, cli.ExitUsage, []string{"check", "main.go"}, "main.go")
}
