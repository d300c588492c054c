package checkpoint

// Resharding: any range of a tensor is assembled from the pieces that cover it, so that N ranks can
// save and M can load.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"

	"spmoe/launcher/checkpoint/safetensors"
)

// span is a stored piece: elements [begin, end) of a tensor.
type span struct {
	begin, end int64
	size       int64 // bytes per element
	shard      *safetensors.File
	info       safetensors.Info
}

// index returns the pieces of each tensor by ascending begin, without those inside an earlier one,
// so that the ends ascend too.
func index(shards []*safetensors.File, shapes map[string][]int) (map[string][]span, error) {
	spans := map[string][]span{}
	for rank, shard := range shards {
		for _, info := range shard.Tensors() {
			name, s, err := spanOf(shard, info, shapes)
			if list := spans[name]; err == nil && len(list) > 0 && list[0].info.DType != info.DType {
				err = fmt.Errorf("%q is %s, other pieces are %s", info.Name, info.DType, list[0].info.DType)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", shardName(rank, len(shards)), err)
			}
			spans[name] = append(spans[name], s)
		}
	}
	for name, list := range spans {
		slices.SortStableFunc(list, func(a, b span) int {
			return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(b.end, a.end))
		})
		kept := list[:0]
		for _, s := range list {
			if len(kept) == 0 || s.end > kept[len(kept)-1].end {
				kept = append(kept, s)
			}
		}
		spans[name] = kept
	}
	return spans, nil
}

// spanOf returns the piece that a tensor of a shard is. It returns an error unless the piece
// belongs to one of the shapes.
func spanOf(shard *safetensors.File, info safetensors.Info, shapes map[string][]int) (name string, s span, err error) {
	name, begin, err := parseKey(info.Name)
	if err != nil {
		return name, s, err
	}
	shape, ok := shapes[name]
	if !ok {
		return name, s, fmt.Errorf("tensor %q is not in the manifest", name)
	}
	total, _ := elements(shape) // the manifest was checked
	size := sizeOf(info.DType)
	if size == 0 || len(info.Shape) != 1 || begin > total || info.Size/size > total-begin {
		return name, s, fmt.Errorf("%q is %s %v: expected 1-D F32 or BF16 inside shape %v", info.Name, info.DType, info.Shape, shape)
	}
	return name, span{begin, begin + info.Size/size, size, shard, info}, nil
}

// ReadInto fills dst's memory with elements [Offset, Offset+Len()) of tensor Name. It returns an
// error if the checkpoint has no such tensor, has it in another shape or type, or does not hold the
// whole range. The memory is then undefined.
func (r *Reader) ReadInto(dst Piece) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("checkpoint %s: %w", r.path, err)
		}
	}()
	shape, ok := r.manifest.Tensors[dst.Name]
	if !ok {
		return fmt.Errorf("no tensor %q among its %d: was it saved by another model or optimizer?", dst.Name, len(r.manifest.Tensors))
	}
	if !slices.Equal(shape, dst.Shape) {
		return fmt.Errorf("tensor %q has shape %v, asked for %v: was it saved by another model?", dst.Name, shape, dst.Shape)
	}
	if err := dst.check(); err != nil {
		return err
	}
	spans := r.spans[dst.Name]
	memory := dst.Bytes()
	at, end := dst.Offset, dst.Offset+int64(dst.Len())
	next := sort.Search(len(spans), func(i int) bool { return spans[i].end > at })
	for ; at < end; next++ {
		if next == len(spans) || spans[next].begin > at {
			return fmt.Errorf("tensor %q: no rank has saved element %d", dst.Name, at)
		}
		s := spans[next]
		if s.info.DType != dst.dtype() {
			return fmt.Errorf("tensor %q is %s, asked for %s: was it saved by another optimizer?", dst.Name, s.info.DType, dst.dtype())
		}
		n := min(s.end, end) - at
		if err := s.shard.ReadAt(s.info, memory[:n*s.size], (at-s.begin)*s.size); err != nil {
			return err
		}
		at, memory = at+n, memory[n*s.size:]
	}
	return nil
}

// Tensor is a tensor that a checkpoint should hold, of type F32 or BF16.
type Tensor struct {
	Shape []int
	DType string
}

// Match returns an error unless the checkpoint holds these tensors, each element of them, and no
// others.
func (r *Reader) Match(want map[string]Tensor) error {
	for _, name := range slices.Sorted(maps.Keys(r.manifest.Tensors)) {
		shape := r.manifest.Tensors[name]
		w, ok := want[name]
		total, _ := elements(shape) // the manifest was checked
		end := int64(0)             // of the elements that are there
		for _, s := range r.spans[name] {
			if s.begin <= end {
				end = s.end
			}
		}
		switch {
		case !ok:
			return fmt.Errorf("tensor %q is not expected", name)
		case !slices.Equal(shape, w.Shape):
			return fmt.Errorf("tensor %q has shape %v, expected %v", name, shape, w.Shape)
		case end < total:
			return fmt.Errorf("tensor %q: no rank has saved element %d", name, end)
		case total > 0 && r.DType(name) != w.DType:
			return fmt.Errorf("tensor %q is %s, expected %s", name, r.DType(name), w.DType)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if _, ok := r.manifest.Tensors[name]; !ok {
			return fmt.Errorf("tensor %q is missing", name)
		}
	}
	return nil
}
