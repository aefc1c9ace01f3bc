// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletflags

import (
	"encoding/csv"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/internal/quantity"
	"github.com/seed81659283/nodeagent/nodestatus"
)

// value is the value of a flag. It implements pflag.Value.
type value struct {
	typ     string
	text    string // default of the kubelet
	content any    // a JSON value or a time.Duration; nil: the flag is not given, or given without effect
	parse   parser
	given   []string // text of each occurrence of the flag
}

// parser returns the content of a flag for the text s of its next occurrence. before is the content of the previous occurrences, or nil.
type parser func(before any, s string) (any, error)

// newValue returns the value of flag f before the command line is parsed. byType has the parser of each flag type.
func newValue(f *Flag, byType map[string]parser) *value {
	v := &value{typ: f.Type, text: f.Default, parse: byType[f.Type]}
	switch f.Name {
	case "eviction-hard", "eviction-soft":
		v.parse = parsePairs("<", ",")
	case "cpu-manager-policy-options":
		v.parse = parsePairs("=", "")
	case "node-labels":
		v.parse = parseLabels
	}
	return v
}

// parsersByType returns the parser of each flag type. Sources: k8s.io/component-base/cli/flag, pkg/util/flag and pflag.
func parsersByType() map[string]parser {
	return map[string]parser{
		"string":                             func(_ any, s string) (any, error) { return s, nil },
		"bool":                               parseSingle(strconv.ParseBool),
		"int32":                              parseSingle(func(s string) (int64, error) { return strconv.ParseInt(s, 0, 32) }),
		"int64":                              parseSingle(func(s string) (int64, error) { return strconv.ParseInt(s, 0, 64) }),
		"duration":                           parseSingle(time.ParseDuration),
		"Level":                              parseSingle(func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 31) }),
		"version":                            parseSingle(parseVersion),
		"ip":                                 parseIP,
		"quantity":                           parseQuantity,
		"stringSlice":                        parseSlice,
		"mapStringString":                    parsePairs("=", ","),
		"mapStringBool":                      parseBools,
		"colonSeparatedMultimapStringString": parseMultimap,
		"[]v1.Taint":                         parseTaints,
		"reserved-memory":                    parseReservedMemory,
		"pattern=N,...":                      parseVModule,
	}
}

// String returns the value as text. It is only called for the default and for scalar values.
func (v *value) String() string {
	if v.content == nil {
		return v.text
	}
	return fmt.Sprint(v.content)
}

// Set parses the value of one more occurrence of the flag.
func (v *value) Set(s string) error {
	content, err := v.parse(v.content, s)
	if err == nil {
		v.content = content
		v.given = append(v.given, s)
	}
	return err
}

// Type returns the name of the type for the help text.
func (v *value) Type() string { return v.typ }

// fieldValue returns the content as a value for encoding/json. A duration is text, such as 10s.
func (v *value) fieldValue() any {
	if d, ok := v.content.(time.Duration); ok {
		return d.String()
	}
	return v.content
}

// parseSingle returns a parser that ignores earlier occurrences of the flag.
func parseSingle[T any](parse func(string) (T, error)) parser {
	return func(_ any, s string) (any, error) { return parse(s) }
}

func parseIP(before any, s string) (any, error) {
	if s == "" {
		return before, nil
	}
	if ip, err := netip.ParseAddr(s); err != nil || ip.Zone() != "" {
		return nil, fmt.Errorf("%q is not a valid IP address", s)
	}
	return s, nil
}

func parseQuantity(_ any, s string) (any, error) {
	if _, err := quantity.Parse(s); err != nil {
		return nil, err
	}
	return s, nil
}

// parseSlice parses a line of comma-separated values, which may be quoted.
func parseSlice(before any, s string) (any, error) {
	list, _ := before.([]string)
	if s == "" {
		return append([]string{}, list...), nil
	}
	more, err := csv.NewReader(strings.NewReader(s)).Read()
	return append(slices.Clip(list), more...), err
}

func parseTaints(_ any, s string) (any, error) {
	taints, err := nodestatus.ParseTaints(s)
	list := []map[string]string{}
	for _, t := range taints {
		list = append(list, map[string]string{"key": t.Key, "value": t.Value, "effect": string(t.Effect)})
	}
	return list, err
}

// parseReservedMemory parses lists of resources by NUMA node, such as 0:memory=1Gi,hugepages-2Mi=4Mi;1:memory=2Gi.
func parseReservedMemory(before any, s string) (any, error) {
	if s == "" {
		return before, nil
	}
	list, _ := before.([]any)
	for node := range strings.SplitSeq(s, ";") {
		number, resources, _ := strings.Cut(node, ":")
		numa, err := strconv.ParseInt(number, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%q does not have the format node:type=quantity,...: %w", node, err)
		}
		limits := map[string]string{}
		for pair := range strings.SplitSeq(resources, ",") {
			name, amount, _ := strings.Cut(pair, "=")
			if name != "memory" && !strings.HasPrefix(name, "hugepages-") {
				return nil, fmt.Errorf("%q is neither memory nor a huge page size", name)
			}
			if _, err := quantity.Parse(amount); err != nil {
				return nil, fmt.Errorf("%q: %w", pair, err)
			}
			limits[name] = amount
		}
		list = append(list, map[string]any{"numaNode": numa, "limits": limits})
	}
	return list, nil
}

// parseVModule parses log levels by file, such as server=4,watch*=9.
func parseVModule(before any, s string) (any, error) {
	list, _ := before.([]any)
	for pair := range strings.SplitSeq(s, ",") {
		if pair == "" {
			continue
		}
		pattern, level, _ := strings.Cut(pair, "=")
		if pattern == "" || level == "" || strings.Contains(level, "=") {
			return nil, fmt.Errorf("%q does not have the pattern=N format", pair)
		}
		v, err := strconv.ParseUint(level, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("parsing verbosity in %q: %w", pair, err)
		}
		list = append(list, map[string]any{"filePattern": pattern, "verbosity": v})
	}
	return list, nil
}
