package moe

// Recipes of single layers: a selection of linear layers, and the recipe that they have instead of
// that of their class.

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// LayerRecipe gives the selected layers a recipe of their own.
type LayerRecipe struct {
	Select Selection
	Recipe *Recipe // nil: they are not quantized
}

// Selection selects linear layers by their kind and by the transformer layer that they are in.
type Selection struct {
	kind  string // key of kinds; empty: all
	where string // "at", "first" or "last"; empty: everywhere
	lo    int    // "at": layers [lo, hi]
	hi    int
	count float64 // "first", "last": this many layers
	share float64 // the same as a share of all layers, rounded up
}

// kinds are the parts of a model that a selection can name.
var kinds = map[string]Part{"attention": Projections, "dense": Dense, "shared": Shared, "experts": Routed, "mtp_join": Joint}

// kindNames lists the kinds in the order of a pass.
var kindNames = []string{"attention", "dense", "shared", "experts", "mtp_join"}

// selectionHelp says what a selection may be.
var selectionHelp = fmt.Sprintf(`give a kind (%s), layers ("4", "0-3", "first 2", "last 15 %%"), or a kind and layers ("experts, last 2")`, strings.Join(kindNames, ", "))

var (
	layerNumbers = regexp.MustCompile(`^(\d{1,5})(?:\s*-\s*(\d{1,5}))?$`)
	layerEnds    = regexp.MustCompile(`^(first|last)\s+(\d{1,5}(?:\.\d{1,9})?)(\s*%)?$`)
)

// ParseSelection reads a selection, such as "experts", "0-3", or "attention, last 15 %". Layers are
// counted from 0, and both ends of a range are selected.
func ParseSelection(text string) (s Selection, err error) {
	invalid := func(why string) (Selection, error) {
		return Selection{}, fmt.Errorf("%.60q %s: %s", text, why, selectionHelp)
	}
	for _, word := range strings.Split(text, ",") {
		word = strings.TrimSpace(word)
		numbers, ends := layerNumbers.FindStringSubmatch(word), layerEnds.FindStringSubmatch(word)
		switch {
		case slices.Contains(kindNames, word) && s.kind == "":
			s.kind = word
		case (numbers != nil || ends != nil) && s.where != "", slices.Contains(kindNames, word):
			return invalid("selects twice")
		case numbers != nil:
			s.where = "at"
			s.lo, _ = strconv.Atoi(numbers[1])
			s.hi = s.lo
			if numbers[2] != "" {
				s.hi, _ = strconv.Atoi(numbers[2])
			}
			if s.hi < s.lo {
				return invalid("ends before it begins")
			}
		case ends != nil:
			s.where = ends[1]
			n, _ := strconv.ParseFloat(ends[2], 64)
			switch {
			case ends[3] == "" && n != math.Trunc(n):
				return invalid("is no whole number of layers")
			case ends[3] == "":
				s.count = n
			case n > 100:
				return invalid("is more than all layers")
			default:
				s.share = n / 100
			}
		default:
			return invalid("selects no layers")
		}
	}
	return s, nil
}

// String returns the selection as ParseSelection reads it.
func (s Selection) String() string {
	var words []string
	if s.kind != "" {
		words = append(words, s.kind)
	}
	number := func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
	switch {
	case s.where == "at" && s.lo == s.hi:
		words = append(words, strconv.Itoa(s.lo))
	case s.where == "at":
		words = append(words, fmt.Sprintf("%d-%d", s.lo, s.hi))
	case s.share > 0:
		words = append(words, s.where+" "+number(math.Round(s.share*1e11)/1e9)+" %")
	case s.where != "":
		words = append(words, s.where+" "+number(s.count))
	}
	return strings.Join(words, ", ")
}

// has reports whether a part of a layer is selected, of a model with layers layers. Those that
// predict further ahead follow, and count with the last one.
func (s Selection) has(part Part, layer, layers int) bool {
	if s.kind != "" && kinds[s.kind] != part {
		return false
	}
	n := int(math.Max(s.count, math.Ceil(s.share*float64(layers))))
	switch s.where {
	case "at":
		return s.lo <= layer && layer <= s.hi
	case "first":
		return layer < n
	case "last":
		return n > 0 && layer >= layers-n
	}
	return true
}
