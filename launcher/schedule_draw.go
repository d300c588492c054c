package main

import (
	"bytes"
	"fmt"

	"spmoe/collective/pipeline"
	"spmoe/launcher/report/figure"
)

// The sizes of a drawing, in pixels.
const (
	rowHeight, rowGap  = 24, 4
	labelWidth         = 60
	mostWidth, perTime = 1600, 28
	leastText          = 12 // width of a box that has a number
)

// kindColors distinguishes the kinds of actions.
var kindColors = map[pipeline.Kind]figure.Shade{
	pipeline.Forward: figure.Palette[1], pipeline.Backward: figure.Palette[2],
	pipeline.InputGrad: figure.Palette[5], pipeline.WeightGrad: figure.Palette[3],
}

// drawSchedule draws a row of boxes per rank, as SVG. The number in a box is the micro-batch. Boxes
// of a rank's later stages are paler.
func drawSchedule(s *pipeline.Schedule, t *pipeline.Timeline) []byte {
	var b bytes.Buffer
	scale := min(perTime, mostWidth/max(t.End, 1e-9))
	width, height := labelWidth+scale*t.End+rowGap, (len(s.Ranks)+1)*(rowHeight+rowGap)+rowGap
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" font-family="sans-serif" font-size="11" text-anchor="middle">`+"\n", width, height)
	fmt.Fprintf(&b, `<title>%s</title><rect width="100%%" height="100%%" fill="%s"/>`+"\n", s.Title(), figure.Hex(figure.Paper.Light))
	drawing := drawing{Buffer: &b, scale: scale, nth: nthStages(s)}
	for rank, list := range t.Ranks {
		y := rowGap + rank*(rowHeight+rowGap)
		drawing.text(labelWidth/2, y, fmt.Sprintf("rank %d", rank), figure.Ink)
		for _, one := range list {
			h := rowHeight / max(len(one.Slot), 1)
			for i, a := range one.Slot {
				drawing.box(a, one, y+i*h, h)
			}
		}
	}
	x := float64(labelWidth)
	for k := pipeline.Forward; k <= pipeline.WeightGrad; k++ {
		y := rowGap + len(s.Ranks)*(rowHeight+rowGap)
		fmt.Fprintf(&b, `<rect x="%.0f" y="%d" width="%d" height="%d" fill="%s"/>`, x, y, rowHeight, rowHeight, figure.Hex(kindColors[k].Light))
		drawing.text(x+rowHeight/2, y, k.String(), figure.Paper)
		x += rowHeight + rowGap
	}
	b.WriteString("\n</svg>\n")
	return b.Bytes()
}

// drawing is a drawing in the making.
type drawing struct {
	*bytes.Buffer
	scale float64 // pixels per time
	nth   []int   // of each stage: its number on its rank
}

// nthStages numbers the stages of each rank from 0 on.
func nthStages(s *pipeline.Schedule) []int {
	counts, nth := make([]int, len(s.Ranks)), make([]int, s.Stages)
	for stage, rank := range s.Holders() {
		nth[stage] = counts[rank]
		counts[rank]++
	}
	return nth
}

// box draws an action. Its name and time appear under the pointer.
func (d drawing) box(a pipeline.Action, t pipeline.Timed, y, height int) {
	if a.Kind == pipeline.ReduceGrad {
		return // it takes no time
	}
	x, width := labelWidth+d.scale*t.Begin, d.scale*(t.End-t.Begin)
	opacity := max(1-0.35*float64(d.nth[a.Stage]), 0.3)
	fmt.Fprintf(d, `<g><title>%v, %.4g to %.4g</title><rect x="%.2f" y="%d" width="%.2f" height="%d" fill="%s" fill-opacity="%.2f" stroke="%s"/>`,
		a, t.Begin, t.End, x, y, width, height, figure.Hex(kindColors[a.Kind].Light), opacity, figure.Hex(figure.Paper.Light))
	if width >= leastText {
		d.text(x+width/2, y+(height-rowHeight)/2, fmt.Sprint(a.Microbatch), figure.Ink)
	}
	d.WriteString("</g>\n")
}

func (d drawing) text(x float64, y int, text string, color figure.Shade) {
	fmt.Fprintf(d, `<text x="%.2f" y="%d" fill="%s">%s</text>`, x, y+rowHeight*2/3, figure.Hex(color.Light), text)
}
