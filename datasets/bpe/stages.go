package bpe

// The stages of a tokenizer.json.

import (
	"errors"
	"fmt"
	"slices"
)

// stagesOf returns the stages of a pre-tokenizer, which must end with ByteLevel. After it, Hugging
// Face's tokenizers work on the spelling of bytes; here all stages work on the bytes.
func stagesOf(p *part) ([]stage, error) {
	var stages []stage
	ended := false
	var add func(p *part) error
	add = func(p *part) error {
		if p.Type == "Sequence" {
			for i := range p.PreTokenizers {
				if err := add(&p.PreTokenizers[i]); err != nil {
					return err
				}
			}
			return nil
		}
		if ended {
			return fmt.Errorf("%.100q after ByteLevel is not supported", p.Type)
		}
		ended = p.Type == "ByteLevel"
		more, err := p.stages()
		stages = append(stages, more...)
		return err
	}
	if p != nil {
		if err := add(p); err != nil {
			return nil, err
		}
	}
	if !ended {
		return nil, errors.New("it has no ByteLevel at its end: expected a byte-level BPE")
	}
	return stages, nil
}

// stages returns the stages of one pre-tokenizer.
func (p *part) stages() ([]stage, error) {
	switch p.Type {
	case "Split":
		s, err := p.split()
		return []stage{s}, err
	case "Digits":
		s := splitStage{match: byHand(digitPattern), behavior: contiguous}
		if p.IndividualDigits {
			s.behavior = isolated
		}
		return []stage{s}, nil
	case "ByteLevel":
		var stages []stage
		if p.AddPrefixSpace == nil || *p.AddPrefixSpace {
			stages = append(stages, prefixStage{})
		}
		if p.UseRegex == nil || *p.UseRegex {
			stages = append(stages, splitStage{match: byHand(gpt2Pattern), behavior: isolated})
		}
		return stages, nil
	}
	return nil, fmt.Errorf("type %.100q is not supported: expected Split, Digits, ByteLevel or a Sequence of them", p.Type)
}

func (p *part) split() (s splitStage, err error) {
	all := []behavior{isolated, removed, contiguous, mergedWithPrevious, mergedWithNext}
	if !slices.Contains(all, p.Behavior) {
		return s, fmt.Errorf("in a Split: behavior %.100q: expected one of %v", p.Behavior, all)
	}
	s = splitStage{behavior: p.Behavior, invert: p.Invert}
	switch {
	case p.Pattern.Regex != nil:
		if s.match, err = compile(*p.Pattern.Regex); err != nil {
			return s, fmt.Errorf("in a Split: %w", err)
		}
	case p.Pattern.String != nil && *p.Pattern.String != "":
		s.match = literal(*p.Pattern.String)
	default:
		return s, errors.New("in a Split: expected a pattern: a Regex, or a String that is not empty")
	}
	return s, nil
}
