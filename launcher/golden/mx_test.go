package golden

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
)

// references are MX files that package mx tests itself against, except casts of single elements.
func references(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("../../mx/testdata/mx_*.safetensors")
	paths = slices.DeleteFunc(paths, func(path string) bool { return strings.Contains(path, "casts") })
	if err != nil || len(paths) != 3 {
		t.Fatalf("%d MX references (%v), want 3", len(paths), err)
	}
	return paths
}

func TestCheckMX(t *testing.T) {
	want := map[string]int{"mx_quantize": 18, "mx_linear": 8, "mx_grouped_linear": 6}
	for _, path := range references(t) {
		lines, err := CheckMX(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".safetensors")
		if len(lines) != want[name] {
			t.Errorf("%s: %d lines, want %d", name, len(lines), want[name])
		}
		for _, l := range lines {
			if !l.OK() || !l.Compared() {
				t.Errorf("%s: %s: %s is %.3g, bound %.3g; %s", name, l.Name, l.Rule, l.Error, l.Bound, l.Note)
			}
		}
	}
}

// rewritten copies a file after edit has changed its tensors.
func rewritten(t *testing.T, path string, edit func(tensors []safetensors.Tensor) []safetensors.Tensor) string {
	t.Helper()
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []safetensors.Tensor
	for _, info := range f.Tensors() {
		data, err := f.Bytes(info.Name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, safetensors.Tensor{Name: info.Name, DType: info.DType, Shape: info.Shape, Data: data})
	}
	out := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := safetensors.Write(out, edit(all), nil); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestCheckMXMisses: a reference that differs in one tensor misses in that tensor.
func TestCheckMXMisses(t *testing.T) {
	outputs := map[string]string{"mx_quantize": "e4m3_floor_data", "mx_linear": "dx", "mx_grouped_linear": "dw"}
	for _, path := range references(t) {
		name := outputs[strings.TrimSuffix(filepath.Base(path), ".safetensors")]
		damaged := rewritten(t, path, func(tensors []safetensors.Tensor) []safetensors.Tensor {
			for _, x := range tensors {
				if x.Name == name {
					for i := range x.Data {
						x.Data[i] ^= 0x41
					}
				}
			}
			return tensors
		})
		lines, err := CheckMX(damaged)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lines {
			if of := strings.TrimSuffix(l.Name, ", ulps") == name; l.OK() == of {
				t.Errorf("%s with another %s: %s has OK %v", filepath.Base(path), name, l.Name, l.OK())
			}
		}
	}
}

func TestCheckMXRefuses(t *testing.T) {
	without := func(name string) func([]safetensors.Tensor) []safetensors.Tensor {
		return func(tensors []safetensors.Tensor) []safetensors.Tensor {
			var kept []safetensors.Tensor
			for _, x := range tensors {
				if x.Name != name {
					kept = append(kept, x)
				}
			}
			return kept
		}
	}
	reshaped := func(name string, shape ...int) func([]safetensors.Tensor) []safetensors.Tensor {
		return func(tensors []safetensors.Tensor) []safetensors.Tensor {
			for i := range tensors {
				if tensors[i].Name == name {
					tensors[i].Shape = shape
				}
			}
			return tensors
		}
	}
	linear, grouped, quantize := "../../mx/testdata/mx_linear.safetensors", "../../mx/testdata/mx_grouped_linear.safetensors", "../../mx/testdata/mx_quantize.safetensors"
	for _, c := range []struct {
		name, path string
		edit       func([]safetensors.Tensor) []safetensors.Tensor
		message    string
	}{
		{"no w", linear, without("w"), "w is"},
		{"w turned", linear, reshaped("w", 128, 64), "w is"},
		{"no ends", grouped, reshaped("group_end", 2, 2), "group_end"},
		{"no codes' scales", quantize, without("e4m3_rceil_scale"), "e4m3_rceil_scale"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := rewritten(t, c.path, c.edit)
			if _, err := CheckMX(path); err == nil || !strings.Contains(err.Error(), c.message) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want one with the path and %q", err, c.message)
			}
		})
	}
	foreign := filepath.Join("testdata", "deepseek_v3_tiny", "train_tokens.safetensors")
	if _, err := CheckMX(foreign); err == nil || !strings.Contains(err.Error(), "no reference") {
		t.Errorf("a foreign file: %v", err)
	}
	if _, err := CheckMX(filepath.Join(t.TempDir(), "none.safetensors")); !os.IsNotExist(err) {
		t.Errorf("a missing file: %v", err)
	}
}
