package stricttoml

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

type inner struct {
	A    int     `toml:"a"`
	Rate float64 `toml:"rate"`
}

type outer struct {
	Name string   `toml:"name"`
	N    int      `toml:"n"`
	List []string `toml:"list"`
	Sub  inner    `toml:"sub"`
	inner
}

func TestUnmarshal(t *testing.T) {
	for _, text := range []string{
		"name = 'x'\nlist = ['a', 'b']\n[sub]\na = 3\nrate = nan\n",
		"list = ['a', 'b']\nsub = {a = 3, rate = nan}\nname = 'x'",
		"sub.a = 3\nsub.rate = nan\n'name' = 'x'\nlist = [\n'a', # one\n'b']",
	} {
		got := outer{N: 7}
		if err := Unmarshal([]byte(text), &got); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if rate := got.Sub.Rate; !math.IsNaN(rate) {
			t.Errorf("%q: the rate is %v", text, rate)
		}
		got.Sub.Rate = 0
		if want := (outer{Name: "x", N: 7, List: []string{"a", "b"}, Sub: inner{A: 3}}); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	many := func(format string) string {
		var b strings.Builder
		for i := 0; b.Len() < MaxSize-100; i++ {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, c := range map[string]struct{ text, want string }{
		"unknown":         {"n = 1\n\nm = 2", `line 3: unknown key "m"`},
		"unknown table":   {"n = 1\n[tab]\n", `line 2: unknown key "tab"`},
		"unknown inside":  {"[sub]\nb = 1", `line 2: unknown key "sub.b"`},
		"unknown inline":  {"sub = {a = 1, b = 2}", `line 1: unknown key "sub.b"`},
		"below a number":  {"n.x = 1", `unknown key "n.x"`},
		"twice":           {"n = 1\nn = 2", "already defined"},
		"array of tables": {"[[sub]]\na = 1", "cannot"},
		"cut":             {"n = 1\nlist = ['a',", "line 2: "},
		"mark":            {"\xef\xbb\xbfn = 1", "byte order mark"},
		"NUL":             {"n = 1\x00", "line 1: expected newline but got U+0000"},
		"other kind":      {"n = 'x'", "cannot"},
		"long":            {strings.Repeat("#", MaxSize+1), "262145 bytes are too long"},
		"deep":            {"n = " + strings.Repeat("[", 100_000), "nested more than"},
		"deep key":        {strings.Repeat("sub.", 60_000) + "a = 1", `unknown key "sub.sub"`},
		"many keys":       {many("x%d=1\n"), `line 1: unknown key "x0"`},
		"long key":        {strings.Repeat("k", 200_000) + " = 1", "unknown key"},
	} {
		err := Unmarshal([]byte(c.text), new(outer))
		if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 300 {
			t.Errorf("%s: %.400v, want %q", name, err, c.want)
		}
	}
}

// What is accepted is what the decoder makes of it with its own check for unknown keys, and what
// that refuses is refused, but for names in capitals.
func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte("name = \"x\"\nn = -0x1f\nlist = ['a', \"\\u00e9\"]\n[sub]\na = 1_000\nrate = 1e-3\n"))
	f.Add([]byte("sub = {a = 3, rate = inf}\n# text\n\"n\" = 5"))
	f.Add([]byte("[[sub]]\n[sub.a]\nsub.a.b = 1979-05-27\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4<<10 {
			return // the check that this is compared with takes the square of the length
		}
		var got, want outer
		err := Unmarshal(text, &got)
		strict := toml.NewDecoder(strings.NewReader(string(text))).DisallowUnknownFields().Decode(&want)
		if err == nil {
			if strict != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%q: %+v, the decoder has %+v, %v", text, got, want, strict)
			}
			return
		}
		if unknown := (*KeyError)(nil); errors.As(err, &unknown) {
			if lines := 1 + strings.Count(string(text), "\n"); unknown.Line < 1 || unknown.Line > lines {
				t.Errorf("%q: line %d of %d", text, unknown.Line, lines)
			}
		} else if strict == nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}
