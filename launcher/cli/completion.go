package cli

// Shell completion: a script per shell, which asks this program for the possible completions of the
// word being typed.

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// complete is the command that the scripts run: "__complete MODE WORDS...", where the last word is
// being typed. It is not for users. MODE is "--", or described for suggestions with a tab and a
// description behind them.
const (
	Complete  = "__complete"
	Described = "described"
)

// The last line of the suggestions where the shell must complete a path itself.
const (
	pathFile   = ":file"
	pathFolder = ":folder"
)

// DefineCompletion defines the flags of completion: none.
func DefineCompletion(*flag.FlagSet) Action {
	return func(_ context.Context, env Env) error {
		shell := strings.Join(env.Args, " ")
		script, ok := map[string]string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}[shell]
		if !ok {
			return fmt.Errorf("completion %q: name the shell: bash, zsh or fish", shell)
		}
		_, err := io.WriteString(env.Out, script)
		return err
	}
}

// PrintSuggestions prints the completions of the last word, one per line. args are the mode and the
// words.
func PrintSuggestions(cmds []Command, args []string, out io.Writer) {
	for _, s := range suggestions(cmds, args[min(1, len(args)):]) {
		if len(args) == 0 || args[0] != Described {
			s, _, _ = strings.Cut(s, "\t")
		}
		fmt.Fprintln(out, strings.TrimSuffix(s, "\t"))
	}
}

// suggestions returns the completions of the last word. Flags and commands have their descriptions
// behind a tab.
func suggestions(cmds []Command, words []string) []string {
	words, split := joinFlags(words)
	if len(words) == 0 {
		words = []string{""}
	}
	before, word := words[:len(words)-1], words[len(words)-1]
	cmd, fs, args := parsePartly(cmds, before)
	given, value, assigned := strings.Cut(word, "=")
	switch name, isFlag := FlagName(word); {
	case isFlag && assigned:
		all := withPrefix(flagValues(cmd.Name, fs.Lookup(name)), value)
		for i, v := range all {
			if !split && !strings.HasPrefix(v, ":") {
				all[i] = given + "=" + v
			}
		}
		return all
	case strings.HasPrefix(word, "-"):
		return withPrefix(flagWords(fs), "--"+name)
	}
	if f := unfinished(fs, before); f != nil {
		return withPrefix(flagValues(cmd.Name, f), word)
	}
	return withPrefix(nextArguments(cmds, cmd, fs, args), word)
}

// joinFlags joins --flag=value, which bash splits into three words. split reports whether the last
// word was split.
func joinFlags(words []string) (joined []string, split bool) {
	for i := 0; i < len(words); i++ {
		last := len(joined) - 1
		if words[i] != "=" || last < 0 || !strings.HasPrefix(joined[last], "-") {
			joined = append(joined, words[i])
			continue
		}
		joined[last] += "="
		if i+1 < len(words) {
			i++
			joined[last] += words[i]
		}
		split = i == len(words)-1
	}
	return joined, split
}

// parsePartly returns the command or subcommand that some words select, its flags, and its
// arguments so far. Until a command or subcommand is given, the flags are those of all.
func parsePartly(cmds []Command, words []string) (cmd Command, fs *flag.FlagSet, args []string) {
	name, rest, err := SplitCommand(cmds, words)
	cmd, ok := Find(cmds, name)
	if err != nil || !ok || len(words) == 0 {
		return Command{Subcommands: cmds}, allFlags(cmds), nil
	}
	if i, _, _ := firstWord([]Command{cmd}, rest); i >= 0 {
		if sub, ok := Find(cmd.Subcommands, rest[i]); ok {
			cmd, rest = sub, slices.Delete(slices.Clone(rest), i, i+1)
		}
	}
	if fs, _ = cmd.Flags(); len(cmd.Subcommands) > 0 {
		fs = allFlags([]Command{cmd})
	}
	for i := 0; i < len(rest); i++ {
		if _, isFlag := FlagName(rest[i]); !isFlag {
			args = append(args, rest[i])
		} else if unfinished(fs, rest[:i+1]) != nil {
			i++
		}
	}
	return cmd, fs, args
}

// unfinished returns the flag that the last word names if the next word is its value.
func unfinished(fs *flag.FlagSet, words []string) *flag.Flag {
	if len(words) == 0 {
		return nil
	}
	last := words[len(words)-1]
	name, _ := FlagName(last)
	if f := fs.Lookup(name); f != nil && takesNext(f, last) {
		return f
	}
	return nil
}

// nextArguments returns the candidates for a command's next argument.
func nextArguments(cmds []Command, cmd Command, fs *flag.FlagSet, args []string) (all []string) {
	describe := func(cmds []Command) []string {
		for _, c := range cmds {
			all = append(all, c.word()+"\t"+c.About)
		}
		return all
	}
	first := len(args) == 0
	takesPath := slices.ContainsFunc([]string{"PATH", "FILE", "FOLDER", "RUN", "CHECKPOINT", "DIR"}, func(kind string) bool {
		return strings.Contains(cmd.Args, kind)
	})
	switch {
	case cmd.Name == "help" && first:
		return describe(cmds)
	case cmd.Name == "help":
		if family, ok := Find(cmds, args[0]); ok && len(args) == 1 {
			return describe(family.Subcommands)
		}
	case len(cmd.Subcommands) > 0 && first:
		return describe(cmd.Subcommands)
	case len(cmd.Choices()) > 0 && first:
		return cmd.Choices()
	case cmd.Name == "inspect" && first:
		return append(Flavors(), pathFolder)
	case takesPath, fs.Lookup("data") != nil: // --data takes several
		return []string{pathFile}
	}
	return nil
}

// flagWords returns the flags of a set as they are typed, with their descriptions.
func flagWords(fs *flag.FlagSet) []string {
	all := []string{"--help"}
	fs.VisitAll(func(f *flag.Flag) {
		if !strings.HasPrefix(f.Usage, Internal) {
			all = append(all, "--"+f.Name+"\t"+flagHelp(f, ""))
		}
	})
	return all
}

// flagValues returns the values that a flag takes, if they are known.
func flagValues(command string, f *flag.Flag) []string {
	if f == nil {
		return nil
	}
	if isBool(f) {
		return []string{"true", "false"}
	}
	if all := FlagChoices(command, f.Name); len(all) > 0 {
		return all
	}
	_, placeholder, _ := splitUsage(f)
	switch {
	case placeholder == "FOLDER", placeholder == "DIR", f.Name == "out" && placeholder == "TEXT":
		return []string{pathFolder}
	case strings.HasPrefix(placeholder, "FILE"), placeholder == "PATH", f.Name == "init-from", f.Name == "tokenizer":
		return []string{pathFile}
	}
	return nil
}

// withPrefix returns the suggestions that begin with a prefix, and the paths that the shell
// completes.
func withPrefix(all []string, prefix string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool {
		return !strings.HasPrefix(s, prefix) && !strings.HasPrefix(s, ":")
	})
}

const bashScript = `# bash completion of launcher
_launcher() {
    local word="${COMP_WORDS[COMP_CWORD]}" line
    [[ $word == "=" ]] && word=""
    COMPREPLY=()
    while IFS= read -r line; do
        case "$line" in
        :file) compopt -o filenames; while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$word") ;;
        :folder) compopt -o filenames; while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -d -- "$word") ;;
        *) COMPREPLY+=("$line") ;;
        esac
    done < <("${COMP_WORDS[0]}" ` + Complete + ` -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _launcher launcher
`

const zshScript = `#compdef launcher
# zsh completion of launcher
_launcher() {
    local line
    local -a found
    for line in "${(@f)$("${words[1]}" ` + Complete + ` -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        case "$line" in
        :file) compset -P '-*='; _files ;;
        :folder) compset -P '-*='; _files -/ ;;
        ?*) found+=("$line") ;;
        esac
    done
    if (( $#found )); then compadd -a found; fi
}
if [[ "${funcstack[1]}" == _launcher ]]; then _launcher "$@"; else compdef _launcher launcher; fi
`

const fishScript = `# fish completion of launcher
function __launcher_complete
    set -l token (commandline -ct)
    set -l words (commandline -opc) "$token"
    set -l given (string match -r -- '^-[^=]*=' $token)
    set -l rest (string replace -r -- '^-[^=]*=' '' "$token")
    for line in ($words[1] ` + Complete + ` ` + Described + ` $words[2..-1] 2>/dev/null)
        switch $line
            case :file
                for path in (__fish_complete_path "$rest"); echo "$given$path"; end
            case :folder
                for path in (__fish_complete_directories "$rest"); echo "$given$path"; end
            case '*'
                echo $line
        end
    end
end
complete -c launcher -f -a '(__launcher_complete)'
`
