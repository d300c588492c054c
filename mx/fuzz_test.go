package mx

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"spmoe/tensor"
	"spmoe/tensor/format"
)

// FuzzQuantize quantizes arbitrary FP32 bits in every format, mode and direction: all tiers must
// agree, and dequantizing must give each element back within half a step of the format's grid, or
// the largest value if it saturated.
func FuzzQuantize(f *testing.F) {
	f.Add([]byte{}, uint8(1), uint8(0))
	f.Add([]byte("\x00\x00\x80\x3f\x00\x00\xc0\x7f\x01\x00\x00\x80\xff\xff\x7f\x7f"), uint8(3), uint8(1))
	f.Add(binary.LittleEndian.AppendUint32(make([]byte, 4*1000), 0x3f800000), uint8(70), uint8(6))
	f.Fuzz(func(t *testing.T, data []byte, width, choice uint8) {
		cols := int(width)%100 + 1
		rows := min(len(data)/4, 1<<14) / cols
		x := tensor.New(tensor.FP32, rows, cols)
		copy(x.Bytes(), data)
		format, mode := MXFormats()[int(choice)%len(MXFormats())], ScaleModes()[int(choice)/len(MXFormats())%len(ScaleModes())]
		name := fmt.Sprintf("%v %v", format, mode)
		ends := []int32{int32(rows / 2), int32(rows)}
		tiersAgree(t, name, x.Mat(), format, mode, ends)
		var g guard
		ex := tensor.NewExec()
		for _, q := range allWays(ex, &g, format, mode, x.Mat(), ends) {
			back := tensor.New(tensor.FP32, rows, cols)
			Dequantize(ex, back.Mat(), q)
			for i, got := range back.F32() {
				checkError(t, name, q, i/cols, i%cols, x.F32()[i], got)
			}
		}
	})
}

// scaleOf finds the scale of an element by counting blocks, group by group.
func scaleOf(q Tensor, r, c int) uint8 {
	if q.Blocks == AlongRows {
		return q.Scales.U8()[r*q.Scales.Dim(1)+c/format.MXBlock]
	}
	first, g := 0, 0
	for lo, hi := group(q.Ends, g); r >= hi; lo, hi = group(q.Ends, g) {
		first += ceilDiv(hi-lo, format.MXBlock)
		g++
	}
	lo, _ := group(q.Ends, g)
	return q.Scales.U8()[(first+(r-lo)/format.MXBlock)*q.Cols()+c]
}

func checkError(t *testing.T, name string, q Tensor, r, c int, x, got float32) {
	t.Helper()
	scale := scaleOf(q, r, c)
	if scale == NaNScale {
		if got == got {
			t.Fatalf("%s, blocks %v: (%d, %d) of a NaN block is %g", name, q.Blocks, r, c, got)
		}
		return
	}
	unit := math.Exp2(float64(scale) - 127)
	scaled, largest := math.Abs(float64(x))/unit, float64(q.Format.Max())
	bound := math.Exp2(math.Max(math.Logb(scaled), float64(q.Format.MinExponent())) - float64(q.Format.Mantissa()+1))
	if scaled > largest {
		bound = math.Max(bound, scaled-largest)
	}
	value := float64(q.Format.Decode(q.Codes.U8()[r*q.Cols()+c])) * unit
	if float32(value) != got {
		t.Fatalf("%s, blocks %v: (%d, %d) is dequantized %g, but means %g", name, q.Blocks, r, c, got, value)
	}
	if err := math.Abs(float64(x)-value) / unit; !(err <= bound) {
		t.Fatalf("%s, blocks %v: (%d, %d) is %g, dequantized %g at scale %d: off by %g scales of at most %g", name, q.Blocks, r, c, x, got, scale, err, bound)
	}
}
