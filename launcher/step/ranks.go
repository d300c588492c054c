package step

// Parallel runs: which part of a tensor each rank has, and how the parts make the whole.

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"spmoe/internal/strictjson"
	"spmoe/launcher/system"
	"spmoe/moe/reference"
)

// Rank is one rank of a parallel run.
type Rank struct {
	Number     int
	Coordinate map[string]int // by mesh dimension
	Tokens     [][]int        // per micro-batch, as indices of the flattened batch

	folder     string
	mesh       []string            // its dimensions in order
	split      int                 // how many ranks share a sequence
	positions  []int               // of its tokens in the batch, as placement.json has them
	placements map[string][]string // torch's words by tensor: one per mesh dimension
	tensors    map[key]entry
}

func newRank(number int, folder string) *Rank {
	return &Rank{Number: number, folder: folder, split: 1, placements: map[string][]string{}, tensors: map[key]entry{}}
}

var (
	placementWord = regexp.MustCompile(`^(?:_Strided)?(?:Shard\((?:dim=)?(-?\d{1,3})(?:, *[a-z_]+=\d+)?\)+|Partial(?:\((?:sum|avg)\))?|Replicate(?:\(\))?)$`)
	meshSize      = regexp.MustCompile(`"(\w+)"\s*:\s*(\d{1,6})\b`)
)

// readPlacement reads a rank's placement.json.
func (f *Folder) readPlacement(r *Rank) error {
	path := filepath.Join(r.folder, "placement.json")
	text, err := system.ReadFile(path, mostJSON)
	if err == nil {
		err = f.parsePlacement(r, text)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (f *Folder) parsePlacement(r *Rank, text []byte) error {
	var file struct {
		Mesh              json.RawMessage // its order counts
		Coordinate        map[string]int
		Positions, Tokens []int // two names of one list
		Tensors           map[string]struct{ Dims, Placements []string }
	}
	if err := strictjson.Unmarshal(text, &file); err != nil {
		return err
	}
	r.Coordinate, r.positions = file.Coordinate, append(file.Positions, file.Tokens...)
	for _, m := range meshSize.FindAllStringSubmatch(string(file.Mesh), -1) {
		size, _ := strconv.Atoi(m[2])
		if c, ok := r.Coordinate[m[1]]; !ok || c < 0 || c >= size {
			return fmt.Errorf("coordinate %d along %.60s, which has %d ranks", c, m[1], size)
		}
		if r.mesh = append(r.mesh, m[1]); m[1] == "cp" {
			r.split = size
		}
	}
	for name, t := range file.Tensors {
		if len(t.Placements) > len(r.mesh) {
			return fmt.Errorf("%.100s has %d placements: the mesh has %d dimensions", name, len(t.Placements), len(r.mesh))
		}
		for _, word := range t.Placements {
			if !placementWord.MatchString(word) {
				return fmt.Errorf("%.100s: placement %.60q: expected Replicate, Shard(DIM), Partial(sum) or Partial(avg)", name, word)
			}
		}
		k := f.canonical(string(Activations)+"/"+name, entry{})
		for of, e := range r.tensors {
			if of.name != k.name || of.class != Activations {
				continue
			}
			if e, swapped := e.batchFirst(t.Dims); swapped {
				r.tensors[of] = e
				for i, word := range t.Placements {
					t.Placements[i] = strings.NewReplacer("(0", "(1", "(1", "(0").Replace(word)
				}
			}
		}
		r.placements[k.name] = t.Placements
	}
	return nil
}

// coordinates returns the different coordinates of ranks along a dimension of the mesh.
func coordinates(ranks []*Rank, axis string) (list []int) {
	for _, r := range ranks {
		list = append(list, r.Coordinate[axis])
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// join makes a tensor of the ranks' parts: shards are put next to each other, partial sums added,
// and replicas compared. Ranks that have the same tokens have parts of one activation, and its rows
// go where their tokens are in the batch. The last few are kept, because fused experts are asked
// for one by one.
func (f *Folder) join(k key, tokens int) (e entry, err error) {
	if e, ok := f.joined[k]; ok {
		return e, nil
	}
	groups, filled, whole := [][]*Rank{f.Ranks}, 0, Value{}
	if tokens > 0 {
		groups = f.groups[k.MicroBatch]
	}
	for _, group := range groups {
		shards, terms, err := f.readShards(k, group)
		if err != nil {
			return e, err
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
			return e, fmt.Errorf("rank %d has %v for its tokens: all are %v", group[0].Number, of.dims, whole.Dims)
		}
		filled += f.add(k, whole, of, shards, rows) / terms
	}
	if whole.Data == nil || filled != len(whole.Data) {
		return e, fmt.Errorf("%w as a whole: ranks have parts of %d of %d elements %v", ErrAbsent, filled, len(whole.Data), whole.Dims)
	}
	if len(f.joined) > 2 { // gate, up and down
		clear(f.joined)
	}
	e = entry{view: rowMajor(whole.Dims), dtype: whole.DType, joined: whole.Data}
	f.joined[k] = e
	return e, nil
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
	seen := map[string]bool{}
	for _, r := range ranks {
		e, ok := r.tensors[k]
		words := r.placements[k.name]
		if at := slices.Index(r.mesh, "ep"); at >= 0 && words == nil && len(e.dims) == 3 && e.dims[0] < f.Model.Experts {
			words = make([]string, at+1) // without a placement: a rank's experts
			words[at] = "Shard(0)"
		}
		s := &shard{ranks: []*Rank{r}, lo: make([]int, len(e.dims)), scale: 1}
		// FSDP's shards are inside those of tensor parallelism, though its dimension comes first.
		for _, strided := range []bool{false, true} {
			for i, word := range words {
				if strings.HasPrefix(word, "_Strided") != strided {
					continue
				}
				all := coordinates(ranks, r.mesh[i])
				at := slices.Index(all, r.Coordinate[r.mesh[i]])
				if strings.HasPrefix(word, "Partial") {
					s.term += fmt.Sprint(r.mesh[i], at, " ")
					if word == "Partial(avg)" {
						s.scale /= float64(len(all))
					}
				}
				m := placementWord.FindStringSubmatch(word)
				if m == nil || m[1] == "" || !ok {
					continue
				}
				dim, _ := strconv.Atoi(m[1])
				if dim < 0 {
					dim += len(e.dims)
				}
				if dim < 0 || dim >= len(e.dims) {
					return nil, 0, fmt.Errorf("a tensor of %v has no dimension %d that ranks share", e.dims, dim)
				}
				s.lo[dim] = s.lo[dim]*len(all) + at
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
	first := map[string]*shard{} // by place: of what should be one
	width := product(whole.Dims[min(1, len(whole.Dims)):])
	reported := false
	for _, s := range shards {
		place := fmt.Sprint(s.lo, s.Dims, s.term)
		if one := first[place]; one != nil {
			equal := slices.EqualFunc(one.Data, s.Data, func(x, y float64) bool { return x == y || x != x && y != y })
			if !equal && !reported {
				f.reportReplicas(k, one, s)
			}
			reported = reported || !equal
			continue
		}
		first[place] = s
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
	return added
}

// reportReplicas says along which axis replicas differ, and by how much of their norm.
func (f *Folder) reportReplicas(k key, a, b *shard) {
	one, other, mesh := a.ranks[0], b.ranks[0], ""
	for _, axis := range one.mesh {
		if one.Coordinate[axis] != other.Coordinate[axis] {
			mesh = axis
		}
	}
	var d, n float64
	for i, x := range a.Data {
		d += (x - b.Data[i]) * (x - b.Data[i])
		n += x * x
	}
	apart := math.Sqrt(d / n)
	f.find(k.name, fmt.Sprintf("%s: ranks %d and %d differ by %.2g, but ranks along %s should have the same: was it reduced over %s?",
		k.class, one.Number, other.Number, apart, mesh, mesh), !(apart < 1e-2))
}
