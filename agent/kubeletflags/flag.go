// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletflags

import (
	"cmp"
	"slices"
	"strings"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
)

// Flag describes a flag of the kubelet.
type Flag struct {
	Name       string // without dashes
	Shorthand  string // one letter; usually empty
	Type       string // of the value, as the kubelet names it
	Default    string // of the kubelet, as text
	Deprecated string // end of the kubelet's warning; empty: not deprecated
	Field      string // that the flag sets in a KubeletConfiguration, such as authentication.x509.clientCAFile; empty: none
	State      kubeletconfig.State
	Comment    string // effect of a flag without field, the reason of the state, or the difference to the kubelet; may be empty
}

// Flags returns all flags of the kubelet of Kubernetes 1.37 on Linux, sorted by name. The result is a copy. Source: cmd/kubelet/app/options.
func Flags() []Flag {
	all := nodeFlags()
	fields, comments := kubeletconfig.Fields(), fieldFlagComments()
	for line := range strings.Lines(strings.TrimSpace(fieldFlags)) {
		cells := strings.Fields(line)
		f := Flag{Name: cells[0], Field: cells[1], Type: cells[2], Deprecated: fieldDeprecated, Comment: comments[cells[0]]}
		if len(cells) > 3 {
			f.Default = strings.Join(cells[3:], " ")
		}
		if slices.Contains(currentFieldFlags(), f.Name) {
			f.Deprecated = ""
		}
		state := fieldState(fields, f.Field)
		f.State, f.Comment = state.State, cmp.Or(f.Comment, state.Comment)
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b Flag) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// fieldState returns the field with this path. If path is that of an object or a list, it returns the first field inside. An unknown path has state
// DefaultOnly.
func fieldState(fields []kubeletconfig.Field, path string) kubeletconfig.Field {
	i := slices.IndexFunc(fields, func(f kubeletconfig.Field) bool {
		rest, found := strings.CutPrefix(f.Name, path)
		return found && (rest == "" || strings.HasPrefix(rest, "[].") || strings.HasPrefix(rest, "."))
	})
	if i < 0 {
		return kubeletconfig.Field{State: kubeletconfig.DefaultOnly}
	}
	return fields[i]
}

// describeUsage returns the line of the help text for the flag.
func (f *Flag) describeUsage() string {
	text := f.Comment
	if f.Field != "" {
		text = strings.TrimSuffix("sets "+f.Field+" of the configuration file; "+f.Comment, "; ")
	}
	if f.State != kubeletconfig.Supported {
		text += " (" + string(f.State) + ")"
	}
	return text
}
