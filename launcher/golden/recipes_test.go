package golden

import (
	"path/filepath"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
)

// recipeReferences are files of package mx, the number of lines, and a tensor of each that counts.
var recipeReferences = []struct {
	file  string
	lines int
	reads string
}{
	{"nvfp4_quantize", 6, "rht_codes"}, {"nvfp4_linear", 6, "dw_f64"}, {"nvfp4_grouped_linear", 6, "dx_f64"},
	{"fp8_block_quantize", 12, "xT_pow2_scales"}, {"small_formats", 8, "e2m1_even_codes"},
	{cores + "h100_dots", 4, "e5m2.d"}, {cores + "b200_dots", 2, "fp16.d"}, {cores + "h100_bf16", 8, "normal.128.out"},
	{cores + "h100_e4m3", 48, "wide.512.out_promoted"}, {cores + "h100_e5m2_mixed", 16, "e5m2_e4m3.wide.32.out_chained"},
	{cores + "h100_blockwise", 12, "blocks_1x128.wide.256.out"},
}

// cores is the folder of products of tensor cores, relative to that of recipeReferences.
const cores = "../../tensor/tensorcore/testdata/"

// TestCheckRecipes: every line of a reference is within its bound. Another content of one tensor is
// found, in its lines only.
func TestCheckRecipes(t *testing.T) {
	for _, r := range recipeReferences {
		path := filepath.Join("../../mx/testdata", r.file+".safetensors")
		for _, damage := range []bool{false, true} {
			at := path
			if damage {
				at = rewritten(t, path, func(tensors []safetensors.Tensor) []safetensors.Tensor {
					for _, x := range tensors {
						if x.Name == r.reads {
							x.Data[len(x.Data)-1] ^= 0x41
						}
					}
					return tensors
				})
			}
			lines, err := CheckMX(at)
			if err != nil || len(lines) != r.lines {
				t.Fatalf("%s: %d lines, %v; want %d", r.file, len(lines), err, r.lines)
			}
			for _, l := range lines {
				if of := damage && strings.HasPrefix(l.Name, r.reads); l.OK() == of {
					t.Errorf("%s, %s damaged: %v: %s is %.3g, bound %.3g; %s", r.file, r.reads, damage, l.Name, l.Error, l.Bound, l.Note)
				}
			}
		}
	}
}

// TestCheckRecipesRefuses: tensors that do not fit are named.
func TestCheckRecipesRefuses(t *testing.T) {
	for _, tt := range []struct {
		file, tensor string
		shape        []int
	}{
		{"nvfp4_quantize", "rows_scales", []int{8, 96}}, {"nvfp4_linear", "y_f64", []int{96, 64}},
		{"nvfp4_grouped_linear", "sizes", []int{2, 2}}, {"nvfp4_grouped_linear", "dw_f64", []int{4, 128, 96}},
		{cores + "h100_bf16", "normal.128.b", []int{6, 256}}, {cores + "h100_blockwise", "blocks_1x128.wide.256.scale_b", []int{2, 12}},
		{cores + "h100_dots", "e4m3.c", []int{300, 1}}, {cores + "h100_e4m3", "bits.32.out_chained", []int{144}},
		{"fp8_block_quantize", "w_free_scales", []int{6}}, {"small_formats", "e2m1_even_codes", []int{128, 48}},
	} {
		path := rewritten(t, filepath.Join("../../mx/testdata", tt.file+".safetensors"), func(tensors []safetensors.Tensor) []safetensors.Tensor {
			for i := range tensors {
				if tensors[i].Name == tt.tensor {
					tensors[i].Shape = tt.shape
				}
			}
			return tensors
		})
		if _, err := CheckMX(path); err == nil || !strings.Contains(err.Error(), tt.tensor) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s with another shape of %s: %v, want an error that names both", tt.file, tt.tensor, err)
		}
	}
}
