package recipefile

import (
	"reflect"
	"strings"
	"testing"

	"spmoe/moe"
	"spmoe/mx"
)

// TestText: the text of each recipe describes it.
func TestText(t *testing.T) {
	options := moe.DefaultOptions()
	options.Sum = "exact"
	for _, want := range append(moe.Precisions(), options.Precisions()...) {
		if !want.Quantizes() {
			continue
		}
		got, err := Parse(Text(want))
		if err != nil {
			t.Errorf("%s: %v in\n%s", want.Name, err, Text(want))
			continue
		}
		want.About = got.About
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s became %+v, want %+v", want.Name, got, want)
		}
	}
}

// TestLayers: groups of layers have recipes of their own, which survive being written.
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
	again, err := Parse(Text(p))
	if err != nil || !reflect.DeepEqual(again, p) {
		t.Errorf("%v: became %+v in\n%s", err, again, Text(p))
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

// FuzzParse: no text makes Parse crash, and what it accepts can be written and read again.
func FuzzParse(f *testing.F) {
	for _, p := range moe.Precisions() {
		f.Add(Text(p))
	}
	f.Add("name = 'a'\n[[layers]]\nselect = 'dense, last 1.5 %'\nforward = { input = { format = 'e4m3' }, weight = { format = 'e4m3' } }\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(Text(p))
		if err != nil || !reflect.DeepEqual(p, again) {
			t.Errorf("%+v became %+v: %v", p, again, err)
		}
	})
}
