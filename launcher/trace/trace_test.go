package trace

import (
	"bytes"
	"errors"
	"testing"
)

func TestWrite(t *testing.T) {
	rows := []Row{
		{"rank 0", []Slice{{"rest", "family", 2_000_000_000, 2_000_000_001, map[string]any{"layer": 2, "shape": "3 x 4 x 5"}}, {"step 1", "step", 2_000_000_000, 2_001_234_567, nil}}},
		{"rank \"1\"", []Slice{{"step 1", "step", 2_000_000_500, 2_000_001_000, nil}}},
		{"rank 2", nil},
	}
	var out bytes.Buffer
	if err := Write(&out, "debug, step 1", rows); err != nil {
		t.Fatal(err)
	}
	want := `{"displayTimeUnit":"ms","traceEvents":[
{"name":"process_name","ph":"M","pid":0,"tid":0,"args":{"name":"debug, step 1"}},
{"name":"thread_name","ph":"M","pid":0,"tid":0,"args":{"name":"rank 0"}},
{"name":"thread_sort_index","ph":"M","pid":0,"tid":0,"args":{"sort_index":0}},
{"name":"step 1","cat":"step","ph":"X","ts":0.000,"dur":1234.567,"pid":0,"tid":0},
{"name":"rest","cat":"family","ph":"X","ts":0.000,"dur":0.001,"pid":0,"tid":0,"args":{"layer":2,"shape":"3 x 4 x 5"}},
{"name":"thread_name","ph":"M","pid":0,"tid":1,"args":{"name":"rank \"1\""}},
{"name":"thread_sort_index","ph":"M","pid":0,"tid":1,"args":{"sort_index":1}},
{"name":"step 1","cat":"step","ph":"X","ts":0.500,"dur":0.500,"pid":0,"tid":1},
{"name":"thread_name","ph":"M","pid":0,"tid":2,"args":{"name":"rank 2"}},
{"name":"thread_sort_index","ph":"M","pid":0,"tid":2,"args":{"sort_index":2}}
]}
`
	if got := out.String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if err := Write(full{}, "", rows); !errors.Is(err, errFull) {
		t.Errorf("error %v, want %v", err, errFull)
	}
}

var errFull = errors.New("no space left")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }
