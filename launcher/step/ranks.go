package step

// Parallel runs: which part of a tensor each rank has, and how the parts make the whole.

import (
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
	folder     string
	mesh       []axis
	coordinate map[string]int
	split      int     // how many ranks share a sequence
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
	strided int // 1: inside the shards of further axes, as FSDP's are over tensor parallelism
	average bool
}

var (
	placementWord = regexp.MustCompile(`^(_Strided)?(Shard|Partial|Replicate)\(?(?:dim=)?(-?\d{1,3}|sum|avg)?(?:, *[a-z_]+=\d+)?\)*$`)
	meshSize      = regexp.MustCompile(`"(\w+)": *(\d{1,6})\b`)
)

// UnmarshalText reads one of torch's words.
func (p *part) UnmarshalText(word []byte) error {
	m := placementWord.FindStringSubmatch(string(word))
	if m == nil || (m[2] == "Shard") != strings.ContainsAny(m[3], "0123456789") {
		return fmt.Errorf("placement %.60q: expected Replicate, Shard(DIM), Partial(sum) or Partial(avg)", word)
	}
	dim, _ := strconv.Atoi(m[3])
	*p = part{m[2], dim, len(m[1]) / len("_Strided"), m[3] == "avg"}
	return nil
}

// readPlacement reads a rank's placement.json.
func (f *Folder) readPlacement(text []byte, r *rank) error {
	var file struct {
		Mesh       json.RawMessage // its order counts
		Coordinate map[string]int
		Positions  []int
		Tensors    map[string]struct {
			Dims       []string
			Placements []part
		}
	}
	if err := strictjson.Unmarshal(text, &file); err != nil {
		return err
	}
	r.coordinate, r.positions = file.Coordinate, file.Positions
	for _, m := range meshSize.FindAllSubmatch(file.Mesh, -1) {
		size, _ := strconv.Atoi(string(m[2]))
		a := axis{string(m[1]), size}
		if c, ok := r.coordinate[a.name]; !ok || c < 0 || c >= a.size {
			return fmt.Errorf("coordinate %d along %.60s, which has %d ranks", c, a.name, a.size)
		}
		if r.mesh = append(r.mesh, a); a.name == "cp" {
			r.split = size
		}
	}
	for name, t := range file.Tensors {
		if len(t.Placements) > len(r.mesh) {
			return fmt.Errorf("%.100s has %d placements: the mesh has %d dimensions", name, len(t.Placements), len(r.mesh))
		}
		name, place, swapped := f.key(Activations, name).name, placement{}, false
		for k, e := range r.tensors {
			if k.name == name && k.class == Activations {
				r.tensors[k], swapped = e.batchFirst(t.Dims)
			}
		}
		for i, p := range t.Placements {
			if swapped && p.dim < 2 {
				p.dim = 1 - p.dim
			}
			place[r.mesh[i].name] = p
		}
		r.placements[name] = place
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
	lo    []int  // where it begins in the whole
	term  string // which of the partial sums it is
}

// assemble concatenates shards, adds partial sums and compares replicas. If no rank has the tensor,
// the value is empty.
func (f *Folder) assemble(k key, ranks []*rank) (whole Value, err error) {
	shards, terms, scale, err := f.readShards(k, ranks)
	if err != nil || len(shards) == 0 {
		return whole, err
	}
	whole.DType, whole.Dims = shards[0].DType, make([]int, len(shards[0].Dims))
	for d := range whole.Dims {
		most := slices.MaxFunc(shards, func(a, b *shard) int { return a.Dims[d] - b.Dims[d] }).Dims[d]
		for _, s := range shards { // all but the last have the same size
			if s.lo[d] *= most; s.Dims[d] > 0 {
				whole.Dims[d] = max(whole.Dims[d], s.lo[d]+s.Dims[d])
			}
		}
	}
	whole.Data = make([]float64, product(whole.Dims))
	versions, filled := map[string][]*shard{}, 0 // by place: of what should be one
	for _, s := range shards {
		place := fmt.Sprint(s.lo, s.Dims, s.term)
		equal := func(x, y float64) bool { return x == y || x != x && y != y }
		same := func(other *shard) bool { return slices.EqualFunc(other.Data, s.Data, equal) }
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
		return Value{}, fmt.Errorf("%w as a whole: ranks have parts that do not add up to %v", ErrAbsent, whole.Dims)
	}
	return whole, nil
}

// readShards reads the parts of ranks. lo counts shards. It also returns how many terms each
// element is the sum of, and their factor.
func (f *Folder) readShards(k key, ranks []*rank) (shards []*shard, terms int, scale float64, err error) {
	var place placement
	for _, r := range ranks {
		e, ok := r.tensors[k]
		if ok && place == nil {
			place = r.placements[k.name]
		}
		if ok && place == nil && len(e.dims) == 3 && e.dims[0] < f.Model.Experts { // of some experts
			place = placement{"ep": part{kind: "Shard"}}
		}
	}
	scale = 1
	for axis, p := range place {
		if p.average {
			scale /= float64(len(coordinates(ranks, axis)))
		}
	}
	seen := map[string]bool{}
	for _, r := range ranks {
		e, ok := r.tensors[k]
		s := &shard{ranks: []*rank{r}, lo: make([]int, len(e.dims))}
		inside := func(a, b axis) int { return place[a.name].strided - place[b.name].strided }
		for _, a := range slices.SortedStableFunc(slices.Values(r.mesh), inside) {
			p, all := place[a.name], coordinates(ranks, a.name)
			at := slices.Index(all, r.coordinate[a.name])
			if p.dim < 0 {
				p.dim += len(e.dims)
			}
			switch {
			case p.kind == "Partial":
				s.term += fmt.Sprint(a.name, at, " ")
			case p.kind != "Shard" || !ok:
			case p.dim < 0 || p.dim >= len(e.dims):
				return nil, 0, 0, fmt.Errorf("a tensor of %v has no dimension %d that ranks share", e.dims, p.dim)
			default:
				s.lo[p.dim] = s.lo[p.dim]*len(all) + at
			}
		}
		if seen[s.term] = true; !ok {
			continue
		}
		if s.Value, err = e.value(); err == nil && len(shards) > 0 && len(s.Dims) != len(shards[0].Dims) {
			err = fmt.Errorf("rank %d has %v, rank %d has %v", shards[0].ranks[0].number, shards[0].Dims, r.number, s.Dims)
		}
		if err != nil {
			return nil, 0, 0, err
		}
		shards = append(shards, s)
	}
	return shards, len(seen), scale, nil
}

// reportReplicas says along which axis replicas differ, and by how much of their norm.
func (f *Folder) reportReplicas(k key, a, b *shard) {
	mesh := ""
	for _, axis := range a.ranks[0].mesh {
		others := coordinates(b.ranks, axis.name)
		if !slices.ContainsFunc(coordinates(a.ranks, axis.name), func(c int) bool { return slices.Contains(others, c) }) {
			mesh = axis.name
		}
	}
	var d, n float64
	for i, x := range a.Data {
		d += (x - b.Data[i]) * (x - b.Data[i])
		n += x * x
	}
	one, other, error := a.ranks[0].number, b.ranks[0].number, math.Sqrt(d/n)
	f.find(Finding{
		Module: k.name, Wrong: !(error < 1e-2), Ranks: []int{one, other}, Mesh: mesh, Error: error,
		Says: fmt.Sprintf("%s: ranks %d and %d differ by %.2g, but ranks along %s should have the same: was it reduced over %s?",
			k.class, one, other, error, mesh, mesh),
	})
}
