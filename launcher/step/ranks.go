package step

// Parallel runs: which part of a tensor each rank has, and how the parts make the whole.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"spmoe/internal/strictjson"
	"spmoe/moe/reference"
)

// rank is the part of one rank.
type rank struct {
	number     int
	mesh       []axis
	coordinate map[string]int
	positions  []int   // of its tokens in the batch, as placement.json has them
	tokens     [][]int // per micro-batch, indices of its flattened tokens
	placements map[string]placement
	tensors    map[key]entry
}

// axis is a dimension of the mesh.
type axis struct {
	name string
	size int
}

// placement has torch's words by axis: Shard, Partial or Replicate, which is what a missing one is.
type placement map[string]part

type part struct {
	kind    string
	dim     int
	strided bool // inside the shards of further axes, as FSDP's are over tensor parallelism
	average bool
}

var placementWord = regexp.MustCompile(`^(_Strided)?(Shard|Partial|Replicate)\(?(?:dim=)?(-?\d{1,3}|sum|avg)?(?:, *[a-z_]+=\d+)?\)?$`)

func parsePart(word string) (part, error) {
	m := placementWord.FindStringSubmatch(strings.TrimSuffix(word, "()"))
	if m == nil {
		return part{}, fmt.Errorf("placement %.60q: expected Replicate, Shard(DIM), Partial(sum) or Partial(avg)", word)
	}
	dim, err := strconv.Atoi(m[3])
	if (m[2] == "Shard") != (err == nil) {
		return part{}, fmt.Errorf("placement %.60q: expected a dimension of Shard, and of nothing else", word)
	}
	return part{m[2], dim, m[1] != "", m[3] == "avg"}, nil
}

// meshSizes is an object whose order counts.
type meshSizes []axis

func (m *meshSizes) UnmarshalJSON(text []byte) error {
	var sizes map[string]int
	if err := json.Unmarshal(text, &sizes); err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	for range 1 + 2*len(sizes) {
		token, _ := decoder.Token()
		if name, ok := token.(string); ok {
			*m = append(*m, axis{name, sizes[name]})
		}
	}
	return nil
}

// readPlacement reads placement.json.
func (f *Folder) readPlacement(text []byte, r *rank) error {
	var file struct {
		Mesh       meshSizes
		Coordinate map[string]int
		Positions  []int
		Tensors    map[string]struct{ Placements []string }
	}
	if err := strictjson.Unmarshal(text, &file); err != nil {
		return err
	}
	r.mesh, r.coordinate, r.positions = file.Mesh, file.Coordinate, file.Positions
	for _, a := range r.mesh {
		if c, ok := r.coordinate[a.name]; !ok || c < 0 || c >= a.size || a.size > 1<<20 {
			return fmt.Errorf("coordinate %d along %.60s, which has %d ranks", c, a.name, a.size)
		}
	}
	for name, t := range file.Tensors {
		p := placement{}
		for i, word := range t.Placements {
			if i >= len(r.mesh) {
				return fmt.Errorf("%.100s has %d placements: the mesh has %d dimensions", name, len(t.Placements), len(r.mesh))
			}
			var err error
			if p[r.mesh[i].name], err = parsePart(word); err != nil {
				return fmt.Errorf("%.100s: %w", name, err)
			}
		}
		r.placements[f.key(Activations, name).name] = p
	}
	return nil
}

// join makes a tensor of the ranks' parts. Activations are joined among ranks that have the same
// tokens. Their rows are then put where their tokens are in the batch.
func (f *Folder) join(k key, tokens int) (Value, error) {
	whole, covered := Value{}, 0
	groups := [][]*rank{f.ranks}
	if tokens > 0 {
		groups = f.groups[k.MicroBatch]
	}
	for _, group := range groups {
		v, err := f.assemble(k, group)
		if err != nil {
			return Value{}, err
		}
		if v.Data == nil {
			continue
		}
		if tokens == 0 {
			return v, nil
		}
		rows := group[0].tokens[k.MicroBatch]
		if !v.flatten(len(rows)) { // the same for all tokens
			return f.assemble(k, f.ranks)
		}
		if whole.Data == nil {
			whole = Value{reference.Tensor{Dims: append([]int{tokens}, v.Dims[1:]...)}, v.DType}
			whole.Data = make([]float64, product(whole.Dims))
		}
		if !slices.Equal(v.Dims[1:], whole.Dims[1:]) {
			return Value{}, fmt.Errorf("rank %d has %v for its tokens: all are %v", group[0].number, v.Dims, whole.Dims)
		}
		width := product(v.Dims[1:])
		for i, t := range rows {
			copy(whole.Data[t*width:][:width], v.Data[i*width:])
		}
		covered += len(rows)
	}
	if whole.Data == nil || covered < tokens {
		return Value{}, fmt.Errorf("%w of ranks with %d of %d tokens", ErrAbsent, tokens-covered, tokens)
	}
	return whole, nil
}

// coordinates returns the different coordinates of ranks along an axis.
func coordinates(ranks []*rank, axis string) (list []int) {
	for _, r := range ranks {
		list = append(list, r.coordinate[axis])
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// shard is what one or several ranks have of a tensor.
type shard struct {
	Value
	ranks []*rank
	index [][]int // per dimension, its place among the shards
	lo    []int   // per dimension, where it begins in the whole
	term  string  // which of the partial sums it is
}

// assemble concatenates shards, adds partial sums and compares replicas. If no rank has the tensor,
// the value is empty.
func (f *Folder) assemble(k key, ranks []*rank) (Value, error) {
	place := f.placementOf(k, ranks)
	shards, terms, err := readShards(k, ranks, place)
	if err != nil || len(shards) == 0 {
		return Value{}, err
	}
	whole := Value{DType: shards[0].DType}
	if whole.Dims, err = arrange(shards); err != nil {
		return Value{}, err
	}
	scale := 1.0
	for axis, p := range place {
		if p.average {
			scale /= float64(len(coordinates(ranks, axis)))
		}
	}
	whole.Data = make([]float64, product(whole.Dims))
	versions, filled := map[string][]*shard{}, 0 // by place: of what should be one
	for _, s := range shards {
		place := fmt.Sprint(s.lo, s.term)
		same := func(other *shard) bool { return difference(other.Data, s.Data) == 0 }
		if i := slices.IndexFunc(versions[place], same); i >= 0 {
			versions[place][i].ranks = append(versions[place][i].ranks, s.ranks...)
			continue
		}
		if versions[place] = append(versions[place], s); len(versions[place]) > 1 {
			continue
		}
		filled += len(s.Data)
		to := rowMajor(whole.Dims)
		for d, lo := range s.lo {
			to = to.slice(d, lo, s.Dims[d], 1)
		}
		to.walk(func(from, at, n int) {
			for i, x := range s.Data[from : from+n] {
				whole.Data[to.offset+at+i] += scale * x
			}
		})
	}
	for _, place := range slices.Sorted(maps.Keys(versions)) {
		if different := versions[place]; len(different) > 1 {
			f.reportReplicas(k, different[0], different[1])
			break
		}
	}
	if filled != len(whole.Data)*terms {
		return Value{}, fmt.Errorf("%w of some ranks that have parts of it", ErrAbsent)
	}
	return whole, nil
}

// placementOf returns how ranks share a tensor. Fused experts that are fewer than the model's are
// those of one rank along ep, if nothing else is said.
func (f *Folder) placementOf(k key, ranks []*rank) placement {
	for _, r := range ranks {
		e, ok := r.tensors[k]
		if !ok {
			continue
		}
		if p, ok := r.placements[k.name+".grad"]; ok && k.class == Gradients {
			return p
		}
		if p, ok := r.placements[k.name]; ok || len(e.dims) != 3 || e.dims[0] >= f.Model.Experts {
			return p
		}
		return placement{"ep": part{kind: "Shard"}}
	}
	return nil
}

// readShards reads the parts of ranks. It also returns how many terms each element is the sum of.
func readShards(k key, ranks []*rank, place placement) (shards []*shard, terms int, err error) {
	seen := map[string]bool{}
	for _, r := range ranks {
		e, ok := r.tensors[k]
		s := &shard{ranks: []*rank{r}, index: make([][]int, len(e.dims)), lo: make([]int, len(e.dims))}
		inside := slices.Clone(r.mesh) // the outermost axis first
		slices.SortStableFunc(inside, func(a, b axis) int {
			return map[bool]int{true: 1}[place[a.name].strided] - map[bool]int{true: 1}[place[b.name].strided]
		})
		for _, a := range inside {
			p, at := place[a.name], r.coordinate[a.name]
			if p.dim < 0 {
				p.dim += len(e.dims)
			}
			switch {
			case p.kind == "Partial":
				s.term += fmt.Sprint(a.name, at, " ")
			case p.kind == "Shard" && ok && (p.dim < 0 || p.dim >= len(e.dims)):
				return nil, 0, fmt.Errorf("a tensor of %v has no dimension %d that ranks share", e.dims, p.dim)
			case p.kind == "Shard" && ok:
				s.index[p.dim] = append(s.index[p.dim], at)
			}
		}
		seen[s.term] = true
		if !ok {
			continue
		}
		if s.Value, err = e.value(); err != nil {
			return nil, 0, err
		}
		if len(shards) > 0 && len(s.Dims) != len(shards[0].Dims) {
			return nil, 0, fmt.Errorf("rank %d has %v, rank %d has %v", shards[0].ranks[0].number, shards[0].Dims, r.number, s.Dims)
		}
		shards = append(shards, s)
	}
	return shards, len(seen), nil
}

// arrange finds where each shard begins, and returns the dimensions of the whole.
func arrange(shards []*shard) ([]int, error) {
	dims := make([]int, len(shards[0].Dims))
	sorted := slices.Clone(shards)
	for d := range dims {
		slices.SortStableFunc(sorted, func(a, b *shard) int { return slices.Compare(a.index[d], b.index[d]) })
		for i, s := range sorted {
			if i > 0 && slices.Equal(s.index[d], sorted[i-1].index[d]) {
				if s.Dims[d] != sorted[i-1].Dims[d] {
					return nil, fmt.Errorf("ranks %d and %d have parts of %v and %v, which do not fit", sorted[i-1].ranks[0].number, s.ranks[0].number, sorted[i-1].Dims, s.Dims)
				}
				s.lo[d] = sorted[i-1].lo[d]
				continue
			}
			s.lo[d] = dims[d]
			dims[d] += s.Dims[d]
		}
	}
	return dims, nil
}

// difference returns ‖a - b‖ / ‖a‖. NaN is equal to NaN.
func difference(a, b []float64) float64 {
	var d, n float64
	for i, x := range a {
		if y := b[i]; x != y && (x == x || y == y) {
			d += (x - y) * (x - y)
		}
		n += x * x
	}
	if d == 0 {
		return 0
	}
	return math.Sqrt(d / n)
}

// reportReplicas says along which axis replicas differ.
func (f *Folder) reportReplicas(k key, a, b *shard) {
	mesh := ""
	for _, axis := range a.ranks[0].mesh {
		others := coordinates(b.ranks, axis.name)
		if !slices.ContainsFunc(coordinates(a.ranks, axis.name), func(c int) bool { return slices.Contains(others, c) }) {
			mesh = axis.name
		}
	}
	one, other, error := a.ranks[0].number, b.ranks[0].number, difference(a.Data, b.Data)
	f.find(Finding{
		Module: k.name, Wrong: !(error < 1e-2), Ranks: []int{one, other}, Mesh: mesh, Error: error,
		Says: fmt.Sprintf("%s: ranks %d and %d differ by %.2g, but ranks along %s should have the same: was it reduced over %s?",
			k.class, one, other, error, mesh, mesh),
	})
}
