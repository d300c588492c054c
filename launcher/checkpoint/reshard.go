// Resharding: any range of a tensor is put together from whatever pieces cover it, so that N ranks save and M load.
package checkpoint

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"spmoe/launcher/checkpoint/safetensors"
)

// span is a stored piece: elements [begin, end) of a tensor.
type span struct {
	begin, end int64
	shard      *safetensors.File
	info       safetensors.Info
}

// index returns the pieces of each tensor by ascending begin, less those that lie inside an earlier one, so that
// the ends ascend too.
func index(shards []*safetensors.File, shapes map[string][]int) (map[string][]span, error) {
	spans := map[string][]span{}
	for rank, shard := range shards {
		for _, info := range shard.Tensors() {
			name, begin, err := parseKey(info.Name)
			if err == nil {
				err = checkStored(name, begin, info, shapes)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", shardName(rank, len(shards)), err)
			}
			spans[name] = append(spans[name], span{begin, begin + info.Size/4, shard, info})
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

// checkStored returns an error unless a stored tensor is a piece of one of the shapes.
func checkStored(name string, begin int64, info safetensors.Info, shapes map[string][]int) error {
	shape, ok := shapes[name]
	if !ok {
		return fmt.Errorf("tensor %q is not in the manifest", name)
	}
	total, err := elements(shape)
	if err != nil {
		return err
	}
	if info.DType != safetensors.F32 || len(info.Shape) != 1 || begin > total || info.Size/4 > total-begin {
		return fmt.Errorf("%q is %s %v: expected 1-D F32 inside shape %v", info.Name, info.DType, info.Shape, shape)
	}
	return nil
}

// ReadInto fills dst.Data with elements [Offset, Offset+len(Data)) of tensor Name. It is an error if the checkpoint
// has no such tensor, has it in another shape, or does not hold the whole range; Data is then undefined.
func (r *Reader) ReadInto(dst Piece) error {
	if err := r.readInto(dst); err != nil {
		return fmt.Errorf("checkpoint %s: %w", r.path, err)
	}
	return nil
}

func (r *Reader) readInto(dst Piece) error {
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
	at, end := dst.Offset, dst.Offset+int64(len(dst.Data))
	next := sort.Search(len(spans), func(i int) bool { return spans[i].end > at })
	for ; at < end; next++ {
		if next == len(spans) || spans[next].begin > at {
			return fmt.Errorf("tensor %q: no rank has saved element %d", dst.Name, at)
		}
		s := spans[next]
		part := dst.Data[at-dst.Offset : min(s.end, end)-dst.Offset]
		if err := s.shard.ReadAt(s.info, bytesOf(part), 4*(at-s.begin)); err != nil {
			return err
		}
		at += int64(len(part))
	}
	return nil
}
