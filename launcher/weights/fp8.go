package weights

// Block-scaled FP8, as DeepSeek-V3 is published: a matrix NAME of E4M3 codes, and NAME_scale_inv
// with one number per block of it. A value is the value of its code times the number of its block.
// The last blocks of rows and columns may be smaller.

import (
	"fmt"
	"slices"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/tensor/format"
)

// scaleSuffix is the suffix of the name of a matrix's scales.
const scaleSuffix = "_scale_inv"

// quantization is quantization_config in a config.json.
type quantization struct {
	Method string `json:"quant_method"`
	Format string `json:"fmt"`
	Block  []int  `json:"weight_block_size"` // rows, columns
}

// mostBlock is far above the side of any block.
const mostBlock = 1 << 20

func (q *quantization) check() error {
	switch {
	case q.Method != "fp8":
		return fmt.Errorf("%s: quantization_config.quant_method is %.100q: only fp8 in blocks is supported", configName, q.Method)
	case q.Format != "" && q.Format != "e4m3":
		return fmt.Errorf("%s: quantization_config.fmt is %.100q: only e4m3 is supported", configName, q.Format)
	case len(q.Block) != 2 || slices.Min(q.Block) < 1 || slices.Max(q.Block) > mostBlock:
		return fmt.Errorf("%s: quantization_config.weight_block_size is %v: expected rows and columns of a block, such as [128, 128]", configName, q.Block[:min(len(q.Block), 8)])
	}
	return nil
}

// scaleBlocks combines every matrix of FP8 codes with its scales, which may be in another shard.
func (s *Source) scaleBlocks(q *quantization) error {
	if q != nil {
		if err := q.check(); err != nil {
			return err
		}
	}
	for name, codes := range s.entries {
		if codes.DType != safetensors.F8E4M3 {
			continue
		}
		scales, ok := s.entries[name+scaleSuffix]
		switch {
		case q == nil:
			return fmt.Errorf("tensor %q is %s, and %s has no quantization_config that says how it is scaled", name, codes.DType, configName)
		case !ok:
			return fmt.Errorf("tensor %q is %s, and there is no tensor %q", name, codes.DType, name+scaleSuffix)
		case len(codes.Shape) != 2:
			return fmt.Errorf("tensor %q is %s of shape %v: expected a matrix", name, codes.DType, codes.Shape)
		}
		b := newBlockScaled(codes, scales, q.Block)
		if dtype := scales.DType; dtype != safetensors.F32 && dtype != safetensors.BF16 || !slices.Equal(scales.Shape, []int{int(b.down), int(b.across)}) {
			return fmt.Errorf("tensor %q is %s of shape %v: expected F32 or BF16 of shape [%d %d], a number for each block of %v of %q",
				scales.Name, dtype, scales.Shape, b.down, b.across, q.Block, name)
		}
		s.entries[name] = entry{codes.Tensor, b.floats}
		delete(s.entries, scales.Name)
	}
	return nil
}

// readCodes is ReadFloat32s for a tensor of E4M3 codes: their values, without scales.
func readCodes(file *safetensors.File, info safetensors.Info, dst []float32, offset int64) error {
	codes, values := make([]byte, min(len(dst), chunk)), format.E4M3.Values()
	for len(dst) > 0 {
		part := codes[:min(len(dst), len(codes))]
		if err := file.ReadAt(info, part, offset); err != nil {
			return err
		}
		for i, code := range part {
			dst[i] = values[code]
		}
		dst, offset = dst[len(part):], offset+int64(len(part))
	}
	return nil
}

// blockScaled is a matrix of E4M3 codes with a scale per block.
type blockScaled struct {
	codes, scales        entry
	cols                 int64 // of the matrix
	blockRows, blockCols int64 // of a block
	down, across         int64 // numbers of blocks
}

func newBlockScaled(codes, scales entry, block []int) blockScaled {
	b := blockScaled{
		codes:     codes,
		scales:    scales,
		cols:      int64(codes.Shape[1]),
		blockRows: int64(block[0]),
		blockCols: int64(block[1]),
	}
	b.down = (int64(codes.Shape[0]) + b.blockRows - 1) / b.blockRows
	b.across = (b.cols + b.blockCols - 1) / b.blockCols
	return b
}

// floats fills dst with elements [offset, offset+len(dst)).
func (b blockScaled) floats(dst []float32, offset int64) error {
	if len(dst) == 0 {
		return nil
	}
	if err := b.codes.floats(dst, offset); err != nil {
		return err
	}
	end := offset + int64(len(dst))
	first, last := offset/b.cols/b.blockRows, (end-1)/b.cols/b.blockRows // rows of blocks
	scales := make([]float32, (last-first+1)*b.across)
	if err := b.scales.floats(scales, first*b.across); err != nil {
		return err
	}
	for at := offset; at < end; {
		row, col := at/b.cols, at%b.cols
		scale := scales[(row/b.blockRows-first)*b.across+col/b.blockCols]
		next := min(end, at-col+min((col/b.blockCols+1)*b.blockCols, b.cols))
		for i := at - offset; i < next-offset; i++ {
			dst[i] *= scale
		}
		at = next
	}
	return nil
}
