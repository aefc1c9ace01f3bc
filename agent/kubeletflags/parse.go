// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletflags

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// ExitCode is the exit code of a kubelet after each error of its command line or configuration. After --help and --version it is 0.
const ExitCode = 1

// CommandLine is a parsed command line. [Parse] creates it.
type CommandLine struct {
	// Warnings are the kubelet's warnings about deprecated flags, one for each use, without line break.
	Warnings []string
	// Output is the text that --help or --version requests. If it is not empty, the program prints it and exits with code 0.
	Output string
	// Config is the configuration file, --config. Empty: none.
	Config string
	// ConfigDir is the directory of drop-ins, --config-dir. Empty: none.
	ConfigDir string
	// Verbosity is the value of -v. The kubelet logs more with a larger number.
	Verbosity uint32

	given []givenFlag // sorted by name
}

// givenFlag is a flag of the command line. Its value combines all occurrences of the flag.
type givenFlag struct {
	Flag
	value *value
}

// describeFlag returns the flag as --name=value for an error.
func (g *givenFlag) describeFlag() string {
	if g.Name == "manifest-url-header" { // its values may be bearer tokens
		return "--" + g.Name
	}
	return fmt.Sprintf("--%s=%.200s", g.Name, strings.Join(g.value.given, ","))
}

// Parse parses the arguments of a kubelet, without the name of the program. An error names the flag and its value. The returned CommandLine has its
// warnings even if there is an error; if only values are refused, it has the other flags. If Output is not empty, other flags are not checked. Source: cmd/kubelet/app/server.go.
func Parse(args []string) (CommandLine, error) {
	var line CommandLine
	var warnings bytes.Buffer
	flags := Flags()
	set, values := newFlagSet(flags)
	set.SetOutput(&warnings)
	err := set.Parse(args)
	line.Warnings = strings.FieldsFunc(warnings.String(), func(r rune) bool { return r == '\n' })
	if err != nil {
		return line, fmt.Errorf("failed to parse kubelet flag: %w", err) // the text of the kubelet, which tools search for
	}
	if set.NArg() > 0 {
		return line, fmt.Errorf("unknown command %s", set.Arg(0))
	}
	if values["help"].content == true {
		line.Output = helpText(set)
		return line, nil
	}
	if line.Output = versionText(values["version"].String()); line.Output != "" {
		return line, nil
	}
	for _, f := range flags {
		if set.Changed(f.Name) && values[f.Name].content != nil {
			line.given = append(line.given, givenFlag{f, values[f.Name]})
		}
	}
	line.Config, line.ConfigDir = values["config"].String(), values["config-dir"].String()
	if v, ok := values["v"].content.(uint64); ok {
		line.Verbosity = uint32(v)
	}
	return line, errors.Join(line.removeInvalid()...)
}

// newFlagSet returns a flag set with all flags, and their values by name. An underscore in the name of a flag counts as a hyphen.
func newFlagSet(flags []Flag) (*pflag.FlagSet, map[string]*value) {
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	set.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	values, byType := map[string]*value{}, parsersByType()
	for _, f := range flags {
		v := newValue(&f, byType)
		values[f.Name] = v
		added := set.VarPF(v, f.Name, f.Shorthand, f.describeUsage())
		added.Deprecated = f.Deprecated // MarkDeprecated would also hide the flag
		if f.Type == "bool" || f.Type == "version" {
			added.NoOptDefVal = "true"
		}
	}
	return set, values
}

// helpText returns the output of --help.
func helpText(set *pflag.FlagSet) string {
	return "The program runs the pods of a node, with the command line of a kubelet. Settings are in the files of --config and --config-dir.\n" +
		"Flags override the files.\n\nUsage:\n  kubelet [flags]\n\nFlags:\n" + set.FlagUsages()
}
