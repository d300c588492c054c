package step

// Parallel runs: which part of a tensor each rank has, and how the parts make the whole.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"spmoe/internal/strictjson"
	"spmoe/launcher/system"
	"spmoe/moe/reference"
)

// rank is the part of one rank.
type rank struct {
	number     int
	mesh       []axis
	coordinate map[string]int
	positions  []int    // of its tokens in the batch, as placement.json has them; nil: not said
	spans      [][3]int // or as sequence, first and last
	tokens     [][]int  // per micro-batch, indices of its flattened tokens
	placements map[string]placement
	tensors    map[key]entry
}

// axis is a dimension of the mesh.
type axis struct {
	name string
	size int
}

// placement says how ranks share a tensor.
type placement struct {
	dims  []string
	parts map[string]part // by axis; missing: replicated
}

// part is a placement in torch's words.
type part struct {
	kind string // "Shard", "Partial" or "Replicate"
	dim  int
	// The shards of further axes are outside this one's, as under FSDP over tensor parallelism.
	strided bool
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

// meshSizes is a JSON object whose order counts.
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

// readPlacement reads a rank's placement.json.
func (f *Folder) readPlacement(path string, r *rank) error {
	var file struct {
		Mesh       meshSizes
		Coordinate map[string]int
		Tokens     [][3]int // sequence, first, last
		Positions  []int
		Tensors    map[string]struct {
			Dims       []string
			Placements []string
		}
	}
	text, err := system.ReadFile(path, mostJSON)
	if err == nil {
		err = strictjson.Unmarshal(text, &file)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	r.mesh, r.coordinate, r.positions, r.spans = file.Mesh, file.Coordinate, file.Positions, file.Tokens
	for _, a := range r.mesh {
		if c, ok := r.coordinate[a.name]; !ok || c < 0 || c >= a.size || a.size > 1<<20 {
			return fmt.Errorf("%s: coordinate %d along %.60s, which has %d ranks", path, c, a.name, a.size)
		}
	}
	for name, t := range file.Tensors {
		p := placement{t.Dims, map[string]part{}}
		for i, word := range t.Placements {
			if i >= len(r.mesh) {
				return fmt.Errorf("%s: %.100s has %d placements: the mesh has %d dimensions", path, name, len(t.Placements), len(r.mesh))
			}
			if p.parts[r.mesh[i].name], err = parsePart(word); err != nil {
				return fmt.Errorf("%s: %.100s: %w", path, name, err)
			}
		}
		r.placements[f.key(Activations, name).name] = p
	}
	return nil
}

// joined is a tensor that was joined, and its replicas that differ.
type joined struct {
	Value
	replicas []Replica
}

// joinOnce is joinRanks. It keeps the last fused weights, because experts are asked for one by one.
func (f *Folder) joinOnce(k key, tokens int, keep bool) (Value, []Replica, error) {
	f.mu.Lock()
	last, ok := f.joined[k]
	f.mu.Unlock()
	if ok {
		return last.Value, last.replicas, nil
	}
	v, replicas, err := f.joinRanks(k, tokens)
	if keep && err == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.joined) >= 3 { // gate, up and down
			clear(f.joined)
		}
		f.joined[k] = joined{v, replicas}
	}
	return v, replicas, err
}

// join is the joining of one tensor.
type join struct {
	folder   *Folder
	key      key
	place    placement
	axes     []axis
	replicas []Replica
}

// joinRanks joins a tensor of rank folders. Activations are joined among the ranks that have the
// same tokens. Their rows are then put where their tokens are in the batch.
func (f *Folder) joinRanks(k key, tokens int) (Value, []Replica, error) {
	j := &join{folder: f, key: k}
	for _, r := range slices.Backward(f.ranks) {
		if _, ok := r.tensors[k]; ok {
			j.axes, j.place = slices.Clone(r.mesh), r.placements[k.name]
			if p, ok := r.placements[k.name+".grad"]; ok && k.class == Gradients {
				j.place = p
			}
		}
	}
	// Shards are outermost, so that a mesh may name the same ranks twice. Strided shards are inside
	// others, and replicas innermost.
	order := func(a axis) int {
		switch p := j.place.parts[a.name]; {
		case p.kind == "Shard" && !p.strided:
			return 0
		case p.kind == "Shard":
			return 1
		case p.kind == "Partial":
			return 2
		}
		return 3
	}
	slices.SortStableFunc(j.axes, func(a, b axis) int { return order(a) - order(b) })
	if tokens == 0 {
		return j.all()
	}
	result, covered := Value{}, 0
	for _, group := range f.groups[k.MicroBatch] {
		v, err := j.combine(group, j.axes)
		if err != nil {
			return Value{}, nil, err
		}
		if v == nil {
			continue
		}
		rows := group[0].tokens[k.MicroBatch]
		if !v.flatten(j.place.dims, len(rows)) { // the same for all tokens
			return j.all()
		}
		if result.Data == nil {
			result = Value{reference.Tensor{Dims: append([]int{tokens}, v.Dims[1:]...)}, v.DType}
			result.Data = make([]float64, product(result.Dims))
		}
		if !slices.Equal(v.Dims[1:], result.Dims[1:]) {
			return Value{}, nil, fmt.Errorf("rank %d has %v for its tokens: others have %v for all", group[0].number, v.Dims, result.Dims)
		}
		width := product(v.Dims[1:])
		for i, t := range rows {
			copy(result.Data[t*width:][:width], v.Data[i*width:])
		}
		covered += len(rows)
	}
	if result.Data == nil || covered < tokens {
		return Value{}, nil, fmt.Errorf("%w: ranks have %d of %d tokens", ErrAbsent, covered, tokens)
	}
	return result, j.replicas, nil
}

// all joins what all ranks have.
func (j *join) all() (Value, []Replica, error) {
	j.replicas = nil
	v, err := j.combine(j.folder.ranks, j.axes)
	if err != nil || v == nil {
		return Value{}, nil, cmp.Or(err, ErrAbsent)
	}
	return *v, j.replicas, nil
}

// combine joins the tensor over the axes, the outermost first. It returns nil if none of the ranks
// has it.
func (j *join) combine(ranks []*rank, axes []axis) (*Value, error) {
	if len(axes) == 0 {
		for _, r := range ranks {
			if e, ok := r.tensors[j.key]; ok {
				v, err := e.value()
				return &v, err
			}
		}
		return nil, nil
	}
	name, how := axes[0].name, j.place.parts[axes[0].name]
	byCoordinate := map[int][]*rank{}
	for _, r := range ranks {
		byCoordinate[r.coordinate[name]] = append(byCoordinate[r.coordinate[name]], r)
	}
	var found []Replica
	var lacking []int
	for _, c := range slices.Sorted(maps.Keys(byCoordinate)) {
		v, err := j.combine(byCoordinate[c], axes[1:])
		if err != nil {
			return nil, err
		}
		if v == nil {
			lacking = append(lacking, c)
			continue
		}
		found = append(found, Replica{Mesh: name, Coordinate: c, Value: *v})
		for _, r := range byCoordinate[c] {
			found[len(found)-1].Ranks = append(found[len(found)-1].Ranks, r.number)
		}
	}
	switch {
	case len(found) == 0:
		return nil, nil
	case how.kind == "Replicate" || how.kind == "":
		j.compare(found)
		return &found[0].Value, nil
	case len(lacking) > 0:
		return nil, fmt.Errorf("%w: ranks with %s %v do not have it", ErrAbsent, name, lacking)
	case how.kind == "Partial":
		return sum(found, how.average)
	}
	return concatenate(found, how.dim)
}

// compare notes replicas that differ.
func (j *join) compare(found []Replica) {
	worst, at := 0.0, 0
	for i, r := range found {
		if d := difference(found[0].Value.Tensor, r.Value.Tensor); d > worst {
			worst, at = d, i
		}
	}
	if worst == 0 {
		return
	}
	j.replicas = append(j.replicas, found...)
	pair, mesh := []int{found[0].Ranks[0], found[at].Ranks[0]}, found[0].Mesh
	j.folder.find(Finding{
		Module: j.key.name, Wrong: worst > 1e-2, Ranks: pair, Mesh: mesh, Error: worst,
		Says: fmt.Sprintf("%s: ranks %d and %d differ by %.2g, but all %d ranks along %s should have the same: was it reduced over %s?",
			j.key.class, pair[0], pair[1], worst, len(found), mesh, mesh),
	})
}

// difference returns ‖a - b‖ / ‖a‖, and infinity for other dimensions. NaN is equal to NaN.
func difference(a, b reference.Tensor) float64 {
	if !slices.Equal(a.Dims, b.Dims) {
		return math.Inf(1)
	}
	var d, n float64
	for i, x := range a.Data {
		if y := b.Data[i]; x != y && (x == x || y == y) {
			d += (x - y) * (x - y)
		}
		n += x * x
	}
	if d == 0 {
		return 0
	}
	if d /= n; d != d {
		return math.Inf(1)
	}
	return math.Sqrt(d)
}

// concatenate joins shards along a dimension.
func concatenate(shards []Replica, dim int) (*Value, error) {
	first := shards[0].Value
	if dim < 0 {
		dim += len(first.Dims)
	}
	if dim < 0 || dim >= len(first.Dims) {
		return nil, fmt.Errorf("shards of %v have no dimension %d to join along", first.Dims, dim)
	}
	result := &Value{DType: first.DType}
	result.Dims = slices.Clone(first.Dims)
	result.Dims[dim] = 0
	for _, s := range shards {
		dims := slices.Clone(s.Value.Dims)
		if len(dims) == len(first.Dims) {
			result.Dims[dim] += dims[dim]
			dims[dim] = first.Dims[dim]
		}
		if !slices.Equal(dims, first.Dims) {
			return nil, fmt.Errorf("shards of %v and %v do not join along dimension %d", first.Dims, s.Value.Dims, dim)
		}
	}
	for i := range product(first.Dims[:dim]) {
		for _, s := range shards {
			n := product(s.Value.Dims[dim:])
			result.Data = append(result.Data, s.Value.Data[i*n:(i+1)*n]...)
		}
	}
	return result, nil
}

// sum adds partial sums. average divides by their number.
func sum(parts []Replica, average bool) (*Value, error) {
	total := parts[0].Value
	total.Data = make([]float64, len(total.Data))
	scale := 1.0
	if average {
		scale = 1 / float64(len(parts))
	}
	for _, p := range parts {
		if !slices.Equal(p.Value.Dims, total.Dims) {
			return nil, fmt.Errorf("partial sums of %v and %v do not add", total.Dims, p.Value.Dims)
		}
		for i, x := range p.Value.Data {
			total.Data[i] += scale * x
		}
	}
	return &total, nil
}
