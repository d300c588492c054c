package strictjson

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// thing has a field of each kind that the formats of this project have.
type thing struct {
	N     int                `json:"n"`
	X     float64            `json:"x"`
	S     string             `json:"s"`
	B     []byte             `json:"b"`
	P     *int               `json:"p"`
	List  []thing            `json:"list"`
	Named map[string]float64 `json:"named"`
}

func TestUnmarshal(t *testing.T) {
	var got thing
	text := ` {"n":1, "S":"\u00e9", "p":null, "other":{"n":[1,{"n":2}]}, "list":[{"n":2},{"n":3}], "named":{"a":1e3}} `
	if err := Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	want := thing{N: 1, S: "é", List: []thing{{N: 2}, {N: 3}}, Named: map[string]float64{"a": 1000}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// The offset and the rule are named, whatever is wrong.
func TestUnmarshalRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":         {"", "offset 0: nothing is there"},
		"mark":            {"\xef\xbb\xbf{}", "byte order mark"},
		"not UTF-8":       {`{"s":"` + "\xff" + `"}`, "the text is not UTF-8"},
		"cut":             {`{"n":1`, "offset 6: the text ends before the value does"},
		"two values":      {`{} {}`, "more follows behind the value"},
		"no value":        {`{"n":}`, "invalid character '}'"},
		"key twice":       {`{"n":1,"n":2}`, `offset 10: the key "n" is there twice`},
		"key in capitals": {`{"s":"","S":""}`, `the key "S" is there twice`},
		"folded key":      {`{"s":"","` + "\u017f" + `":""}`, "is there twice"},
		"inner key twice": {`{"other":[{"a":1,"a":1}]}`, `the key "a" is there twice`},
		"deep":            {strings.Repeat("[", 100_000), "nested more than 32 deep"},
		"other kind":      {`{"n":"1"}`, "offset 8: json: cannot unmarshal string"},
		"beyond int":      {`{"n":9223372036854775808}`, "cannot unmarshal number"},
		"long number":     {`{"n":` + strings.Repeat("9", 1<<20) + `}`, "cannot unmarshal number"},
		"long key":        {`{"` + strings.Repeat("k", 1<<20) + `":1,"` + strings.Repeat("k", 1<<20) + `":1}`, "is there twice"},
		"not base64":      {`{"b":"?"}`, "illegal base64"},
	} {
		err := Unmarshal([]byte(c.text), new(thing))
		if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 4*maxMessage+50 {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// What is accepted is what the standard library makes of it, and encodes to something that is
// accepted.
func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(`{"n":1,"x":-2.5e-3,"s":"\ud83d\ude00","b":"AAEC","p":7,"list":[{"n":2,"named":{"a":1,"b":2}}],"other":[null,true]}`))
	f.Add([]byte(`{"n":1,"N":2}`))
	f.Add([]byte(`[[[[{"a":[]}]]]]`))
	f.Add([]byte("\xef\xbb\xbf{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, want thing
		if err := Unmarshal(data, &got); err != nil {
			if len(err.Error()) > 4*maxMessage+50 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if err := json.Unmarshal(data, &want); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, the standard library has %+v, %v", got, want, err)
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if err := Unmarshal(text, new(thing)); err != nil && !strings.Contains(err.Error(), "twice") { // keys of a map may differ in case
			t.Errorf("%s: %v", text, err)
		}
	})
}
