package ratios

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"spmoe/collective"
	"spmoe/moe"
)

var shape = Shape{Name: "tiny", Dim: 32, Layers: 2, Experts: 8, TopK: 3, Groups: 1, Limit: 1, Seq: 16}

// gather runs a meter on every rank and returns the first one's file.
func gather(t *testing.T, ranks int, feed func(rank int, m *Meter)) (f File) {
	t.Helper()
	err := collective.NewWorld(ranks).Run(func(c *collective.Comm) error {
		m, err := NewMeter(shape, []int{1, 2}, ranks)
		if err != nil {
			return err
		}
		feed(c.Rank(), m)
		got, err := m.Gather(c)
		if c.Rank() == 0 {
			f = got
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// What a meter counts is what counting token by token gives, masked choices left out.
func TestMeter(t *testing.T) {
	const ranks, tokens = 4, 50
	choices := func(rank int) (topk []int32) {
		rng := rand.New(rand.NewPCG(uint64(rank), 1))
		for i := range tokens {
			for k, e := range rng.Perm(shape.Experts)[:shape.TopK] {
				if i%7 == 0 && k == 1 {
					e = -1
				}
				topk = append(topk, int32(e))
			}
		}
		return topk
	}
	var rows [8]int64
	var sent, copies [ranks][ranks]int64
	pairs := 0.0 // places of two experts that a token visits
	for r := range ranks {
		topk := choices(r)
		for i := range tokens {
			seen := map[int32]bool{}
			for _, e := range topk[i*shape.TopK:][:shape.TopK] {
				if e >= 0 {
					rows[e]++
					sent[r][e/2]++
					seen[e/2] = true
				}
			}
			for place := range seen {
				copies[r][place]++
				pairs++
			}
		}
	}
	f := gather(t, ranks, func(rank int, m *Meter) {
		m.Choices(2, choices(rank), shape.TopK)
		m.Step([]int64{0, 0, 0, 0, 0, 0, 0, 0, 10, 30, 0, 0, 20, 20, 0, 0})
		m.Step([]int64{0, 0, 0, 0, 0, 0, 0, 0, 10, 10, 10, 10, 10, 10, 10, 10})
		m.Sequence([]int32{5, 5, 0, 5, 5, 5}, 0)
	})
	if f.Layers[0].Layer != 1 || f.Layers[1].Layer != 2 || !reflect.DeepEqual(f.Layers[1].Rows, rows[:]) {
		t.Errorf("rows %+v, want %v", f.Layers, rows)
	}
	for r := range ranks {
		if !reflect.DeepEqual(f.Traffic.Rows[r], sent[r][:]) || !reflect.DeepEqual(f.Traffic.Copies[r], copies[r][:]) {
			t.Errorf("rank %d: %v and %v, want %v and %v", r, f.Traffic.Rows[r], f.Traffic.Copies[r], sent[r], copies[r])
		}
	}
	var four Place
	for _, p := range f.Layers[1].Places {
		if p.Places == 4 {
			four = p
		}
	}
	// Of four places, in the first step the fullest has 40 of 80, twice the mean.
	if math.Abs(four.Distinct-pairs/(ranks*tokens)) > 1e-12 || math.Abs(four.Imbalance-(2.0+1)/2) > 1e-12 {
		t.Errorf("four places: %+v, want %g distinct and 1.5", four, pairs/(ranks*tokens))
	}
	if math.Abs(f.Padding.To32-(32*4+32*8-80-80)/160.0) > 1e-12 || math.Abs(f.Density.Causal-21.0/36) > 1e-12 || math.Abs(f.Density.Document-(6+6)/36.0) > 1e-12 {
		t.Errorf("padding %+v, density %+v", f.Padding, f.Density)
	}
	standard, dedup := f.Traffic.Bytes()
	if total := rows[0] + rows[1] + rows[2] + rows[3] + rows[4] + rows[5] + rows[6] + rows[7]; standard != total*64 || dedup != int64(pairs)*64 {
		t.Errorf("%d and %d bytes", standard, dedup)
	}
}

// whole is a file that is in order.
func whole(t testing.TB) File {
	cfg, err := moe.FlavorByName("debug")
	if err != nil {
		t.Fatal(err)
	}
	return File{
		Schema: Schema, Origin: "train", Ranks: 2, Steps: 1,
		Model:    Shape{Name: "debug", Dim: cfg.Dim, Layers: cfg.Layers, Experts: 2, TopK: 1, Groups: 1, Limit: 1},
		Layers:   []Layer{{Layer: 1, Rows: []int64{3, 5}, Places: []Place{{2, 1, 1.25}}}},
		Phases:   map[string]float64{"exchange": 0.25},
		Products: []Product{{"o", "1x2x3", 0.9}}, Exchange: []Exchange{{Tokens: 8, Time: 0.5}},
	}
}

func TestParse(t *testing.T) {
	f := whole(t)
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(text)
	if err != nil || !reflect.DeepEqual(got, f) {
		t.Errorf("%+v, %v, want %+v", got, err, f)
	}
	if p, ok := got.At(7); !ok || p.Places != 2 || p.Imbalance != 1.25 {
		t.Errorf("%+v, %v", p, ok)
	}
	for what, change := range map[string]func(*File){
		"schema":      func(f *File) { f.Schema = 2 },
		"experts":     func(f *File) { f.Model.Experts = 0 },
		"top-k":       func(f *File) { f.Model.TopK = 9 },
		"groups":      func(f *File) { f.Model.Limit = 3 },
		"ranks":       func(f *File) { f.Ranks = -1 },
		"rows":        func(f *File) { f.Layers[0].Rows = nil },
		"place":       func(f *File) { f.Layers[0].Places[0].Places = 3 },
		"imbalance":   func(f *File) { f.Layers[0].Places[0].Imbalance = -1 },
		"phase":       func(f *File) { f.Phases["exchange"] = 2 },
		"product":     func(f *File) { f.Products[0].Time = 0 },
		"an exchange": func(f *File) { f.Exchange[0].Time = -1 },
	} {
		f := whole(t)
		change(&f)
		text, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(text); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
}

func TestFill(t *testing.T) {
	a, b := whole(t), whole(t)
	a.Phases, a.Exchange, b.Products = nil, nil, []Product{{"other", "", 2}}
	a.Fill(b)
	if a.Phases["exchange"] != 0.25 || len(a.Exchange) != 1 || a.Products[0].Name != "o" {
		t.Errorf("%+v", a)
	}
}

// Whatever a file holds, it is an error or something that is safe to look up in.
func FuzzParse(f *testing.F) {
	text, err := json.Marshal(whole(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"schema":1,"ranks":1,"model":{"experts":16384,"top_k":1,"groups":1,"group_limit":1}}`))
	f.Add([]byte(`{"schema":1e9`))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Parse(text)
		if err != nil {
			return
		}
		for _, places := range []int{1, 32, 1 << 12} {
			if p, ok := file.At(places); ok && !(p.Places >= 1 && p.Distinct >= 0 && p.Imbalance >= 0) {
				t.Errorf("%+v", p)
			}
		}
	})
}
