package hosts

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// lines are those of bench train for the flavor small with sequences of 512 tokens.
func lines(t testing.TB) string {
	per := flavor(t, "small").FLOPsPerToken(512)
	return fmt.Sprintf(`{"name":"bf16_tokens_per_s","value":1715.5,"flavor":"small","np":2}
{"name":"bf16_tflops","value":%v,"flavor":"small","np":2}
{"name":"bf16_memory_bytes","value":3727000000,"flavor":"small","np":2}

{"name":"mxint8_tokens_per_s","value":1976,"flavor":"small","np":2,"more":[1]}
{"name":"mxint8_tflops","value":%v,"flavor":"small","np":2}
{"name":"mxint8_over_bf16","value":1.15,"flavor":"small","np":2}
`, 1715.5*per/1e12, 1976*per/1e12)
}

func TestReadTrain(t *testing.T) {
	per := flavor(t, "small").FLOPsPerToken(512)
	for _, want := range []Train{
		{"small", 2, "bf16", 512, 1715.5, 1715.5 * per, 3727000000},
		{"small", 2, "mxint8", 512, 1976, 1976 * per, 0},
	} {
		asked := want.Precision
		if asked == "bf16" {
			asked = "" // it is the first
		}
		got, err := ReadTrain([]byte(lines(t)), asked)
		if math.Abs(got.FLOPS/want.FLOPS-1) < 1e-12 {
			got.FLOPS = want.FLOPS
		}
		if err != nil || got != want {
			t.Errorf("%+v, %v: want %+v", got, err, want)
		}
	}
	for want, text := range map[string]string{
		"the report has no tokens per second":      `{"name":"x","value":1}`,
		"line 1: offset":                           `{"name":`,
		`line 2: "x" is there already`:             `{"name":"x","value":1}` + "\n" + `{"name":"x","value":2}`,
		`there is no figure "bf16_tflops"`:         `{"name":"bf16_tokens_per_s","value":1,"flavor":"small","np":2}`,
		"bf16_tokens_per_s is 0: it must be posit": `{"name":"bf16_tokens_per_s","value":0,"flavor":"small","np":2}`,
		`unknown flavor "huge"`:                    strings.ReplaceAll(lines(t), `"small"`, `"huge"`),
		"match no sequence length of flavor debug": strings.ReplaceAll(lines(t), `"small"`, `"debug"`),
	} {
		if _, err := ReadTrain([]byte(text), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", text, err, want)
		}
	}
	if _, err := ReadTrain([]byte(lines(t)), "fp32"); err == nil || !strings.Contains(err.Error(), "use bf16, mxint8") {
		t.Errorf("a precision that was not measured: %v", err)
	}
}

func TestReadLink(t *testing.T) {
	got, err := ReadLink([]byte(`{"name":"link_gbytes_per_s","value":1.25,"hosts":2}
{"name":"link_latency_us","value":40}`))
	if err != nil || math.Abs(got.Bandwidth-1.25e9) > 1 || math.Abs(got.Latency-40e-6) > 1e-15 {
		t.Errorf("%+v, %v", got, err)
	}
	for want, text := range map[string]string{
		`no figure "link_latency_us"`:   `{"name":"link_gbytes_per_s","value":1}`,
		`no figure "link_gbytes_per_s"`: ``,
		"link_gbytes_per_s is -1":       `{"name":"link_gbytes_per_s","value":-1}`,
		"link_latency_us is 0":          `{"name":"link_gbytes_per_s","value":1}` + "\n" + `{"name":"link_latency_us","value":0}`,
		"line 1: offset":                `{"name":"link_gbytes_per_s","value":"fast"}`,
	} {
		if _, err := ReadLink([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", text, err, want)
		}
	}
}

// Whatever a file holds, it is refused or it can be projected.
func FuzzFigures(f *testing.F) {
	f.Add(lines(f), "")
	f.Add(lines(f), "mxint8")
	f.Add(`{"name":"link_gbytes_per_s","value":1e308}`+"\n"+`{"name":"link_latency_us","value":1e-308}`, "")
	f.Fuzz(func(t *testing.T, text, precision string) {
		if l, err := ReadLink([]byte(text)); err == nil && l.Latency < 0 {
			t.Errorf("%+v", l)
		}
		train, err := ReadTrain([]byte(text), precision)
		if err != nil {
			return
		}
		r := small(t)
		r.Model, r.Seq, r.FLOPS = flavor(t, train.Flavor), train.Seq, train.FLOPS
		if got := r.rate(); math.Abs(got/train.TokensPerSecond-1) > 1e-2 {
			t.Errorf("one host makes %g tokens a second, %g were measured", got, train.TokensPerSecond)
		}
	})
}
