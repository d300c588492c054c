package moe

// Stages in Megatron's notation, as in "Et*3|(tt|)*29,m|L": E is the embedding, t a transformer
// layer, m the MTP module, L the head with the loss, and | begins the next stage. x*3 and (xy)*3
// repeat. Commas and spaces mean nothing.

import (
	"fmt"
	"strconv"
)

// ParseStages returns the stages that a layout in Megatron's notation describes. Errors name the
// character. The MTP module is in the last stage or in the one before it, which the head follows
// alone.
func (c Config) ParseStages(layout string) ([]Stage, error) {
	r := layoutReader{text: layout}
	letters, err := r.sequence(false)
	if err != nil {
		return nil, fmt.Errorf("layout %.60q: %w", layout, err)
	}
	b := stageBuilder{cfg: c}
	for _, l := range letters {
		if err := b.add(l); err != nil {
			return nil, fmt.Errorf("layout %.60q: %v: %w", layout, l, err)
		}
	}
	if err := b.finish(); err != nil {
		return nil, fmt.Errorf("layout %.60q: %w", layout, err)
	}
	return b.stages, nil
}

// layoutLetter is a letter of a layout with its place, from 1 on.
type layoutLetter struct {
	letter byte
	place  int
}

func (l layoutLetter) String() string { return fmt.Sprintf("character %d, %q", l.place, l.letter) }

// mostLetters bounds a layout that repeats.
const mostLetters = 1 << 16

// layoutReader expands repetitions.
type layoutReader struct {
	text string
	at   int
}

// sequence reads letters and groups until the end, or until the parenthesis that closes a group.
func (r *layoutReader) sequence(group bool) (all []layoutLetter, err error) {
	for r.at < len(r.text) {
		here := layoutLetter{r.text[r.at], r.at + 1}
		r.at++
		var item []layoutLetter
		switch here.letter {
		case ',', ' ':
			continue
		case 'E', 't', 'm', 'L', '|':
			item = []layoutLetter{here}
		case '(':
			if item, err = r.sequence(true); err != nil {
				return nil, err
			}
			if r.text[r.at-1] != ')' {
				return nil, fmt.Errorf("%v is not closed: give )", here)
			}
		case ')':
			if group {
				return all, nil
			}
			return nil, fmt.Errorf("%v closes nothing: give ( before it", here)
		default:
			return nil, fmt.Errorf("%v: give E, t, m, L, |, parentheses and *", here)
		}
		times, err := r.times()
		if err != nil {
			return nil, err
		}
		if len(all)+times*len(item) > mostLetters {
			return nil, fmt.Errorf("%v repeats to more than %d letters", here, mostLetters)
		}
		for range times {
			all = append(all, item...)
		}
	}
	return all, nil
}

// times reads a repetition such as *3; 1 if there is none.
func (r *layoutReader) times() (int, error) {
	if r.at == len(r.text) || r.text[r.at] != '*' {
		return 1, nil
	}
	star := layoutLetter{'*', r.at + 1}
	r.at++
	begin := r.at
	for r.at < len(r.text) && r.text[r.at] >= '0' && r.text[r.at] <= '9' {
		r.at++
	}
	n, err := strconv.Atoi(r.text[begin:r.at])
	if err != nil || n < 1 || n > mostLetters {
		return 0, fmt.Errorf("%v: give a number from 1 on after it, as in t*3", star)
	}
	return n, nil
}

// stageBuilder builds stages letter by letter.
type stageBuilder struct {
	cfg    Config
	stages []Stage
	now    Stage
	layers int // so far
	mtp    int
	any    bool // the stage has something
}

// add adds a letter.
func (b *stageBuilder) add(l layoutLetter) error {
	switch {
	case l.letter == '|':
		return b.next()
	case b.now.Predict:
		return fmt.Errorf("nothing comes after L")
	case l.letter == 'E':
		if b.any || len(b.stages) > 0 {
			return fmt.Errorf("begin with E, once")
		}
		b.now.Embed = true
	case len(b.stages) == 0 && !b.now.Embed:
		return fmt.Errorf("begin with E")
	case b.mtp > 0 && l.letter == 't':
		return fmt.Errorf("only L comes after m")
	case l.letter == 't':
		if b.layers++; b.layers > b.cfg.Layers {
			return fmt.Errorf("the model has %d layers: give as many t", b.cfg.Layers)
		}
		b.now.End = b.layers
	case l.letter == 'm':
		if b.mtp++; b.mtp > b.cfg.MTPLayers {
			return fmt.Errorf("the model has %d MTP modules: leave m out", b.cfg.MTPLayers)
		}
		b.now.MTP = true
	case l.letter == 'L':
		b.now.Predict = true
	}
	b.any = true
	return nil
}

// next ends a stage.
func (b *stageBuilder) next() error {
	switch {
	case !b.any:
		return fmt.Errorf("the stage before it is empty")
	case b.now.Predict:
		return fmt.Errorf("nothing comes after L")
	}
	b.stages, b.now, b.any = append(b.stages, b.now), Stage{First: b.layers, End: b.layers}, false
	return nil
}

// finish ends the last stage.
func (b *stageBuilder) finish() error {
	switch {
	case b.layers < b.cfg.Layers:
		return fmt.Errorf("it has %d t for a model of %d layers", b.layers, b.cfg.Layers)
	case b.mtp < b.cfg.MTPLayers:
		return fmt.Errorf("the model has an MTP module: give mL or m|L at the end")
	case !b.now.Predict:
		return fmt.Errorf("it ends without L, the head")
	}
	b.stages = append(b.stages, b.now)
	return nil
}
