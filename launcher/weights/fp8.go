package weights

// Block-scaled FP8, as DeepSeek-V3 is published: a matrix NAME of E4M3 codes, and NAME_scale_inv
// with one number per block of it. A value is the value of its code times the number of its block.
// The last blocks of rows and columns may be smaller.

import (
	"fmt"
	"slices"
	"strings"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/mx"
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

// addStored adds the tensors of files to the source. Matrices of FP8 codes are combined with their
// scales.
func (s *Source) addStored(stored map[string]plain, q *quantization) error {
	if q != nil {
		if err := q.check(); err != nil {
			return err
		}
	}
	table := decodeTable()
	for name, p := range stored {
		t := Tensor{name, p.info.DType, p.info.Shape}
		if p.info.DType == safetensors.F8E4M3 {
			scaled, err := newBlockScaled(name, p, stored, q, table)
			if err != nil {
				return err
			}
			s.entries[name] = entry{t, scaled}
			continue
		}
		if of, ok := strings.CutSuffix(name, scaleSuffix); ok && stored[of].info.DType == safetensors.F8E4M3 {
			continue
		}
		s.entries[name] = entry{t, p}
	}
	return nil
}

// decodeTable returns the value of every E4M3 code.
func decodeTable() *[256]float32 {
	table := new([256]float32)
	for code := range table {
		table[code] = mx.E4M3.Decode(uint8(code))
	}
	return table
}

// blockScaled is a matrix of E4M3 codes with a scale per block.
type blockScaled struct {
	codes, scales        plain
	cols                 int64 // of the matrix
	blockRows, blockCols int64 // of a block
	blocksAcross         int64 // number of blocks side by side
	table                *[256]float32
}

func newBlockScaled(name string, codes plain, stored map[string]plain, q *quantization, table *[256]float32) (*blockScaled, error) {
	scales, ok := stored[name+scaleSuffix]
	switch {
	case q == nil:
		return nil, fmt.Errorf("tensor %q is %s, and %s has no quantization_config that says how it is scaled", name, codes.info.DType, configName)
	case !ok:
		return nil, fmt.Errorf("tensor %q is %s, and there is no tensor %q", name, codes.info.DType, name+scaleSuffix)
	case len(codes.info.Shape) != 2:
		return nil, fmt.Errorf("tensor %q is %s of shape %v: expected a matrix", name, codes.info.DType, codes.info.Shape)
	}
	rows, cols := codes.info.Shape[0], codes.info.Shape[1]
	down, across := blocks(rows, q.Block[0]), blocks(cols, q.Block[1])
	if dtype := scales.info.DType; dtype != safetensors.F32 && dtype != safetensors.BF16 || !slices.Equal(scales.info.Shape, []int{down, across}) {
		return nil, fmt.Errorf("tensor %q is %s of shape %v: expected F32 or BF16 of shape [%d %d], a number for each block of %v of %q",
			name+scaleSuffix, dtype, scales.info.Shape, down, across, q.Block, name)
	}
	return &blockScaled{
		codes: codes, scales: scales, cols: int64(cols),
		blockRows: int64(q.Block[0]), blockCols: int64(q.Block[1]), blocksAcross: int64(across), table: table,
	}, nil
}

// blocks returns the number of blocks of a size in n elements.
func blocks(n, size int) int { return (n + size - 1) / size }

func (b *blockScaled) floats(dst []float32, offset int64) error {
	codes := make([]byte, min(len(dst), chunk))
	for len(dst) > 0 {
		part := dst[:min(len(dst), chunk)]
		if err := b.codes.file.ReadAt(b.codes.info, codes[:len(part)], offset); err != nil {
			return err
		}
		if err := b.decode(part, codes[:len(part)], offset); err != nil {
			return err
		}
		dst, offset = dst[len(part):], offset+int64(len(part))
	}
	return nil
}

// decode sets dst to the values of codes, which begin at element offset.
func (b *blockScaled) decode(dst []float32, codes []byte, offset int64) error {
	first := offset / b.cols / b.blockRows // row of blocks
	last := (offset + int64(len(dst)) - 1) / b.cols / b.blockRows
	scales := make([]float32, (last-first+1)*b.blocksAcross)
	if err := b.scales.floats(scales, first*b.blocksAcross); err != nil {
		return err
	}
	for at := 0; at < len(dst); {
		row, col := (offset+int64(at))/b.cols, (offset+int64(at))%b.cols
		across := col / b.blockCols
		scale := scales[(row/b.blockRows-first)*b.blocksAcross+across]
		end := min(int64(len(dst)), int64(at)+min((across+1)*b.blockCols, b.cols)-col)
		for i, code := range codes[at:end] {
			dst[at+i] = b.table[code] * scale
		}
		at = int(end)
	}
	return nil
}
