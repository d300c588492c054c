package recipefile

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"spmoe/moe"
	"spmoe/mx"
)

// The file that docs offer as a start is the built-in recipe.
func TestStart(t *testing.T) {
	text, err := os.ReadFile("../../docs/recipes/nvfp4.toml")
	if err != nil {
		t.Fatal(err)
	}
	want, err := moe.PrecisionByName("nvfp4")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(string(text))
	got.About = want.About
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v: it is %+v, want %+v", err, got, want)
	}
}

// TestLayers: groups of layers have recipes of their own.
func TestLayers(t *testing.T) {
	p, err := Parse(`
name = "mixed"
linears.forward = { input = { format = "e4m3" }, weight = { format = "e4m3" } }
[[layers]]
select = "experts, first 2"
sum = "exact"
dgrad = { gradient = { format = "nvfp4", rounding = "stochastic" }, weight = { format = "nvfp4" } }
[[layers]]
select = "last 15 %"
`)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Layers) != 2 || p.Layers[0].Select.String() != "experts, first 2" || p.Layers[0].Recipe.Dgrad.Left.Rounding != mx.Stochastic || p.Layers[1].Recipe != nil {
		t.Errorf("%+v", p.Layers)
	}
}

// TestMistakes: an error names the operand and says what it may be.
func TestMistakes(t *testing.T) {
	const both = "forward = { input = { format = 'e4m3' }, weight = { format = 'e4m3' } }\n"
	for _, c := range [][2]string{
		{"[linears]\n" + both, `name is ""`},
		{"name = 'a/b'\n", "letters, digits"},
		{"name = 'mine'\n", "no operand has a format"},
		{"name = 'mine'\nplain = 3\n", `unknown key "plain"`},
		{"name = 'mine'\n[linears]\nforward.input.format = 'fp9'\n", `linears.forward.input: "fp9" is not a number format`},
		{"name = 'mine'\n[experts]\nwgrad.input.rounding = 'nearest'\n", "experts.wgrad.input: it has no format"},
		{"name = 'mine'\n[experts]\nforward.gradient.format = 'e4m3'\n", `unknown key "experts.forward.gradient"`},
		{"name = 'mine'\n[experts]\nforward.input.format = 'e4m3'\n", "quantize both operands or neither"},
		{"name = 'mine'\n[experts]\nforward.weight.format = 'e4m3'\n", "quantize both operands or neither"},
		{"name = 'mine'\n[linears]\nsum = 'fp16'\n" + both, `linears.sum: "fp16"`},
		{"name = 'mine'\n[linears]\nforward.input = { format = 'e4m3', hadamard = 5 }\n", "a power of two"},
		{"name = 'mine'\n[linears]\nforward.input = { format = 'e4m3', no_signs = true }\n", "give its points too"},
		{"name = 'mine'\n[linears]\nwgrad.gradient = { format = 'e2m1', hadamard = 16, no_signs = true }\nwgrad.input = { format = 'e2m1', hadamard = 16 }\n", "the same signs"},
		{"name = 'mine'\n[linears]\nforward.input = { format = 'e4m3', rounding = 'up' }\n", `"up" is not a rounding`},
		{"name = 'mine'\n[linears]\nforward.input = { format = 'e4m3', scale = 'up' }\n", `"up" is not`},
		{"name = 'mine'\n[[layers]]\n" + both, `layers number 1: select = "" selects no layers: give a kind (attention,`},
		{"name = 'mine'\n[[layers]]\nselect = 'router'\n" + both, `"router" selects no layers`},
		{"name = 'mine'\n[[layers]]\nselect = 'dense'\nforward.input.format = 'fp9'\n", `layers "dense".forward.input: "fp9" is not`},
		{"name = 'mine'\n[[layers]]\nselect = 'dense'\n", "no operand has a format"},
		{"name = 'mine'\n[[layers]]\nselekt = 'dense'\n", `unknown key`},
		{"name = 'mine'\nplain_tail = 2.0\n[linears]\n" + both, "a share of 2"},
	} {
		if _, err := Parse(c[0]); err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%q: %v, want %q", c[0], err, c[1])
		}
	}
}
