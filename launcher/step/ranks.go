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

// Rank is one rank of a parallel run.
type Rank struct {
	Number     int
	Coordinate map[string]int // by mesh dimension
	Tokens     [][]int        // per micro-batch, as indices of the flattened batch

	folder     string
	mesh       []axis
	split      int   // how many ranks share a sequence
	positions  []int // of its tokens in the batch, as placement.json has them
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
	meshSize      = regexp.MustCompile(`"(\w+)"\s*:\s*(\d{1,6})\b`)
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
func (f *Folder) readPlacement(text []byte, r *Rank) error {
	var file struct {
		Mesh              json.RawMessage // its order counts
		Coordinate        map[string]int
		Positions, Tokens []int // two names of one list
		Tensors           map[string]struct {
			Dims       []string
			Placements json.RawMessage
		}
	}
	if err := strictjson.Unmarshal(text, &file); err != nil {
		return err
	}
	r.Coordinate, r.positions = file.Coordinate, append(file.Positions, file.Tokens...)
	for _, m := range meshSize.FindAllSubmatch(file.Mesh, -1) {
		size, _ := strconv.Atoi(string(m[2]))
		a := axis{string(m[1]), size}
		if c, ok := r.Coordinate[a.name]; !ok || c < 0 || c >= a.size {
			return fmt.Errorf("coordinate %d along %.60s, which has %d ranks", c, a.name, a.size)
		}
		if r.mesh = append(r.mesh, a); a.name == "cp" {
			r.split = size
		}
	}
	for name, t := range file.Tensors {
		place, err := r.readWords(t.Placements)
		if err != nil {
			return fmt.Errorf("%.100s: %w", name, err)
		}
		name, swapped := f.key(Activations, name).name, false
		for k, e := range r.tensors {
			if k.name == name && k.class == Activations {
				r.tensors[k], swapped = e.batchFirst(t.Dims)
			}
		}
		for axis, p := range place {
			if swapped && p.dim < 2 {
				p.dim = 1 - p.dim
				place[axis] = p
			}
		}
		r.placements[name] = place
	}
	return nil
}

// readWords reads the placements of a tensor: a list in the order of the mesh's dimensions, or
// words by the names of dimensions.
func (r *Rank) readWords(text json.RawMessage) (place placement, err error) {
	if list := []part{}; bytes.HasPrefix(text, []byte("[")) {
		err = json.Unmarshal(text, &list)
		place = placement{}
		for i, p := range list[:min(len(list), len(r.mesh))] {
			place[r.mesh[i].name] = p
		}
		if len(list) > len(r.mesh) {
			err = fmt.Errorf("it has %d placements: the mesh has %d dimensions", len(list), len(r.mesh))
		}
	} else if text != nil {
		err = json.Unmarshal(text, &place)
	}
	for name := range place {
		if !slices.ContainsFunc(r.mesh, func(a axis) bool { return a.name == name }) {
			err = fmt.Errorf("it has a placement along %.60q: the mesh has %v", name, r.mesh)
		}
	}
	return place, err
}

// join makes a tensor of the ranks' parts: shards are put next to each other, partial sums added,
// and replicas compared. Ranks that have the same tokens have parts of one activation, and its rows
// go where their tokens are in the batch.
func (f *Folder) join(k key, tokens int) (whole Value, err error) {
	groups, filled := [][]*Rank{f.Ranks}, 0
	if tokens > 0 {
		groups = f.groups[k.MicroBatch]
	}
	for _, group := range groups {
		shards, terms, err := f.readShards(k, group)
		if err != nil {
			return Value{}, err
		}
		if len(shards) == 0 {
			continue
		}
		of := rowMajor(placeShards(shards))
		v := Value{reference.Tensor{Dims: of.dims}, shards[0].DType}
		var rows []int
		if tokens > 0 {
			rows = group[0].Tokens[k.MicroBatch]
			if !v.flatten(len(rows)) { // the same for all tokens
				return f.join(k, 0)
			}
			v.Dims[0] = tokens
		}
		if whole.Data == nil {
			whole = v
			whole.Data = make([]float64, product(v.Dims))
		}
		if !slices.Equal(v.Dims, whole.Dims) {
			return Value{}, fmt.Errorf("rank %d has %v for its tokens: all are %v", group[0].Number, of.dims, whole.Dims)
		}
		filled += f.add(k, whole, of, shards, rows) / terms
	}
	if whole.Data == nil || filled != len(whole.Data) {
		return Value{}, fmt.Errorf("%w as a whole: ranks have parts of %d of %d elements %v", ErrAbsent, filled, len(whole.Data), whole.Dims)
	}
	return whole, nil
}

// coordinates returns the different coordinates of ranks along an axis.
func coordinates(ranks []*Rank, axis string) (list []int) {
	for _, r := range ranks {
		list = append(list, r.Coordinate[axis])
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// shard is what one or several ranks have of a tensor.
type shard struct {
	Value
	ranks []*Rank
	lo    []int   // where it begins in the whole; before placeShards, in shards
	term  string  // which of the partial sums it is
	scale float64 // less than 1 for an average
}

// readShards reads the parts of ranks. It also returns how many terms each element is the sum of.
func (f *Folder) readShards(k key, ranks []*Rank) (shards []*shard, terms int, err error) {
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
	seen := map[string]bool{}
	for _, r := range ranks {
		e, ok := r.tensors[k]
		s := &shard{ranks: []*Rank{r}, lo: make([]int, len(e.dims)), scale: 1}
		inside := func(a, b axis) int { return place[a.name].strided - place[b.name].strided }
		for _, a := range slices.SortedStableFunc(slices.Values(r.mesh), inside) {
			p, all := place[a.name], coordinates(ranks, a.name)
			at := slices.Index(all, r.Coordinate[a.name])
			if p.dim < 0 {
				p.dim += len(e.dims)
			}
			switch {
			case p.kind == "Partial":
				s.term += fmt.Sprint(a.name, at, " ")
				if p.average {
					s.scale /= float64(len(all))
				}
			case p.kind != "Shard" || !ok:
			case p.dim < 0 || p.dim >= len(e.dims):
				return nil, 0, fmt.Errorf("a tensor of %v has no dimension %d that ranks share", e.dims, p.dim)
			default:
				s.lo[p.dim] = s.lo[p.dim]*len(all) + at
			}
		}
		if seen[s.term] = true; !ok {
			continue
		}
		if s.Value, err = e.value(); err == nil && len(shards) > 0 && len(s.Dims) != len(shards[0].Dims) {
			err = fmt.Errorf("rank %d has %v, rank %d has %v", shards[0].ranks[0].Number, shards[0].Dims, r.Number, s.Dims)
		}
		if err != nil {
			return nil, 0, err
		}
		shards = append(shards, s)
	}
	return shards, len(seen), nil
}

// placeShards finds where shards begin, and the dimensions of the whole. Along a dimension, all but
// the last have the same size.
func placeShards(shards []*shard) []int {
	dims := make([]int, len(shards[0].Dims))
	for d := range dims {
		most := slices.MaxFunc(shards, func(a, b *shard) int { return a.Dims[d] - b.Dims[d] }).Dims[d]
		for _, s := range shards {
			if s.lo[d] *= most; s.Dims[d] > 0 {
				dims[d] = max(dims[d], s.lo[d]+s.Dims[d])
			}
		}
	}
	return dims
}

// add adds each different shard to the whole and reports replicas that differ. Row i of the shards'
// tensor is row rows[i] of the whole, or row i. It returns how many elements were added.
func (f *Folder) add(k key, whole Value, of view, shards []*shard, rows []int) (added int) {
	versions := map[string][]*shard{} // by place: of what should be one
	equal := func(x, y float64) bool { return x == y || x != x && y != y }
	width := product(whole.Dims[min(1, len(whole.Dims)):])
	for _, s := range shards {
		place := fmt.Sprint(s.lo, s.Dims, s.term)
		same := func(other *shard) bool { return slices.EqualFunc(other.Data, s.Data, equal) }
		if i := slices.IndexFunc(versions[place], same); i >= 0 {
			versions[place][i].ranks = append(versions[place][i].ranks, s.ranks...)
			continue
		}
		if versions[place] = append(versions[place], s); len(versions[place]) > 1 {
			continue
		}
		added += len(s.Data)
		to := of
		for d, lo := range s.lo {
			to = to.slice(d, lo, s.Dims[d])
		}
		to.walk(func(from, at, n int) {
			for i, x := range s.Data[from : from+n] {
				element := to.offset + at + i
				if rows != nil {
					element = rows[element/width]*width + element%width
				}
				whole.Data[element] += s.scale * x
			}
		})
	}
	for _, place := range slices.Sorted(maps.Keys(versions)) {
		if different := versions[place]; len(different) > 1 {
			f.reportReplicas(k, different[0], different[1])
			break
		}
	}
	return added
}

// reportReplicas says along which axis replicas differ, and by how much of their norm.
func (f *Folder) reportReplicas(k key, a, b *shard) {
	mesh := ""
	for _, axis := range a.ranks[0].mesh {
		ours := coordinates(a.ranks, axis.name)
		if both := coordinates(slices.Concat(a.ranks, b.ranks), axis.name); len(both) == len(ours)+len(coordinates(b.ranks, axis.name)) {
			mesh = axis.name
		}
	}
	var d, n float64
	for i, x := range a.Data {
		d += (x - b.Data[i]) * (x - b.Data[i])
		n += x * x
	}
	one, other, error := a.ranks[0].Number, b.ranks[0].Number, math.Sqrt(d/n)
	says := fmt.Sprintf("%s: ranks %d and %d differ by %.2g, but ranks along %s should have the same: was it reduced over %s?",
		k.class, one, other, error, mesh, mesh)
	f.find(Finding{Module: k.name, Wrong: !(error < 1e-2), Ranks: []int{one, other}, Mesh: mesh, Error: error, Says: says})
}
