package main

// The picture: one row of boxes per layer, arrows from importers down to what they import.

import (
	"fmt"
	"html"
	"strings"
)

// Lengths in pixels. A letter is as wide as one of a 13 px monospaced font.
const (
	pictureWidth = 900
	margin       = 10
	columnGap    = 40
	rowGap       = 44
	padding      = 14
	lineHeight   = 19
	letterWidth  = 7.9
)

const pictureHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img" aria-labelledby="title">
<title id="title">Packages of spmoe and their imports</title>
<style>
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #24292f }
.name { font-size: 15px; font-weight: 700 }
.about { fill: #57606a }
rect { fill: #f6f8fa; stroke: #afb8c1 }
.arrow { stroke: #57606a; stroke-width: 1.5 }
#head { fill: #57606a }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.about { fill: #9198a1 }
rect { fill: #161b22; stroke: #484f58 }
.arrow { stroke: #9198a1 }
#head { fill: #9198a1 }
}
</style>
<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path id="head" d="M0,0 L8,4 L0,8 z"/></marker></defs>
`

// drawnBox is a box with its place in the picture and its lines of text.
type drawnBox struct {
	*box
	about, packages     []string // lines of text
	x, y, width, height int
}

// picture is a set of boxes with their places.
type picture struct {
	boxes  []*drawnBox
	height int
}

// newPicture places boxes in rows by layer. The rows of one layer have equal heights. A layer of
// one box has it at the left, except for the top layer, whose box is as wide as the picture.
func newPicture(all []*box, said synopses) *picture {
	p := &picture{height: margin}
	for layer := 0; ; layer++ {
		var row []*drawnBox
		for _, b := range all {
			if b.layer == layer {
				row = append(row, &drawnBox{box: b})
			}
		}
		if len(row) == 0 {
			p.height += margin - rowGap
			return p
		}
		columns := max(2, len(row))
		if layer == 0 {
			columns = len(row)
		}
		p.addRow(row, columns, said)
	}
}

// addRow places the boxes of one layer in columns, below those placed before.
func (p *picture) addRow(row []*drawnBox, columns int, said synopses) {
	width := (pictureWidth - 2*margin - columnGap*(columns-1)) / columns
	height := 0
	for i, b := range row {
		b.x, b.y, b.width = margin+i*(width+columnGap), p.height, width
		letters := int(float64(width-2*padding) / letterWidth)
		b.about = wrap(strings.Fields(said[b.folder]), " ", letters)
		b.packages = wrap(b.box.packages, "   ", letters)
		height = max(height, 2*padding+lineHeight*(1+len(b.about)+len(b.packages)))
	}
	for _, b := range row {
		b.height = height
	}
	p.boxes = append(p.boxes, row...)
	p.height += height + rowGap
}

// wrap joins words into lines of at most the given number of letters.
func wrap(words []string, separator string, letters int) (lines []string) {
	for _, word := range words {
		last := len(lines) - 1
		if last >= 0 && len(lines[last])+len(separator)+len(word) <= letters {
			lines[last] += separator + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

func (p *picture) svg() string {
	var out strings.Builder
	fmt.Fprintf(&out, pictureHead, pictureWidth, p.height)
	byFolder := map[string]*drawnBox{}
	for _, b := range p.boxes {
		byFolder[b.folder] = b
		b.draw(&out)
	}
	for _, b := range p.boxes {
		for _, to := range b.arrows {
			drawArrow(&out, b, byFolder[to])
		}
	}
	out.WriteString("</svg>\n")
	return out.String()
}

func (b *drawnBox) draw(out *strings.Builder) {
	fmt.Fprintf(out, `<rect x="%d" y="%d" width="%d" height="%d" rx="6"/>`+"\n", b.x, b.y, b.width, b.height)
	y := b.y + padding
	line := func(class, text string) {
		y += lineHeight
		fmt.Fprintf(out, `<text class="%s" x="%d" y="%d" xml:space="preserve">%s</text>`+"\n", class, b.x+padding, y-5, html.EscapeString(text))
	}
	line("name", b.folder)
	for _, text := range b.about {
		line("about", text)
	}
	for _, text := range b.packages {
		line("package", text)
	}
}

// drawArrow draws an arrow from the middle of one box's lower edge to another's upper edge. Where
// the boxes stand above each other, the arrow is vertical.
func drawArrow(out *strings.Builder, from, to *drawnBox) {
	x1, x2 := from.x+from.width/2, to.x+to.width/2
	if from.x <= x2 && x2 <= from.x+from.width {
		x1 = x2
	}
	fmt.Fprintf(out, `<line class="arrow" x1="%d" y1="%d" x2="%d" y2="%d" marker-end="url(#end)"/>`+"\n", x1, from.y+from.height, x2, to.y-2)
}
