// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package promtest

import (
	"fmt"
	"slices"
	"strings"
)

// Compare compares our metrics with those of the kubelet, and returns a sorted text for each difference that verdicts does
// not permit. Each metric of the kubelet needs a verdict, which must be true. Each verdict must match a metric of the
// kubelet. A metric that only we have must have a name with one of the prefixes in own, such as nodeagent_.
//
// Each line of verdicts is one verdict. "same NAME" means that the metric is equal. "absent NAME: reason" means that we do
// not have it. "labels NAME: reason" means that it differs only in its labels. "varies NAME: reason" means that the kubelet
// or nodeagent may lack it.
//
// A NAME that ends with * stands for all metrics with that prefix, except for metrics that have a line with their whole
// name. Empty lines and lines that start with # are ignored.
func Compare(kubelet, ours []Family, verdicts string, own ...string) []string {
	list, problems := parseVerdicts(verdicts)
	theirs, mine := indexByName(kubelet), indexByName(ours)
	for name, family := range theirs {
		verdict := list.findVerdict(name)
		if verdict == nil {
			problems = append(problems, fmt.Sprintf("%s: the kubelet has it, and no verdict is about it", name))
			continue
		}
		if problem := verdict.findMismatch(family, mine[name]); problem != "" {
			problems = append(problems, name+": "+problem)
		}
	}
	for name := range mine {
		isOwn := slices.ContainsFunc(own, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		if v := list.findVerdict(name); theirs[name] == nil && !isOwn && (v == nil || v.kind != "varies") {
			problems = append(problems, fmt.Sprintf("%s: we have it, the kubelet does not, and its name does not say so", name))
		}
	}
	for _, verdict := range list {
		if !verdict.used {
			problems = append(problems, fmt.Sprintf("%s: there is a verdict, and the kubelet has no such family", verdict.name))
		}
	}
	slices.Sort(problems)
	return problems
}

// verdict is an expected difference between the metrics of a kubelet and ours: for one metric, or for all with a prefix.
type verdict struct {
	kind, name, reason string
	used               bool
}

// findMismatch returns "" if a metric differs from that of the kubelet only as v describes, and otherwise a text. ours may
// be nil.
func (v *verdict) findMismatch(theirs, ours *Family) string {
	switch {
	case v.kind == "varies":
		return ""
	case v.kind == "absent" && ours != nil:
		return "it is said to be absent (" + v.reason + "), and is not"
	case v.kind == "absent":
		return ""
	case ours == nil:
		return "it is said to be the " + v.kind + ", and is absent"
	}
	a, b := *theirs, *ours
	if v.kind == "labels" {
		if slices.Equal(a.Labels, b.Labels) {
			return "its labels are said to differ (" + v.reason + "), and do not"
		}
		a.Labels, b.Labels = nil, nil
	}
	if want, got := a.String(), b.String(); want != got {
		return fmt.Sprintf("it differs:\n\tkubelet %s\n\tours    %s", want, got)
	}
	return ""
}

// verdictList has all verdicts in the order of their lines.
type verdictList []*verdict

func parseVerdicts(text string) (list verdictList, problems []string) {
	seen := map[string]bool{}
	for number, line := range listLines(text) {
		kind, rest, _ := strings.Cut(line, " ")
		name, reason, explained := strings.Cut(strings.TrimSpace(rest), ":")
		v := &verdict{kind: kind, name: strings.TrimSpace(name), reason: strings.TrimSpace(reason)}
		switch {
		case !slices.Contains([]string{"same", "absent", "labels", "varies"}, kind), v.name == "", strings.Contains(v.name, " "):
			problems = append(problems, fmt.Sprintf("line %d: %q: want same, absent, labels or varies, and a name", number, line))
		case kind != "same" && (!explained || v.reason == ""):
			problems = append(problems, fmt.Sprintf("line %d: %q: want a reason", number, line))
		case seen[v.name]:
			problems = append(problems, fmt.Sprintf("line %d: %q: there is a verdict about it already", number, line))
		default:
			seen[v.name] = true
			list = append(list, v)
		}
	}
	return list, problems
}

// findVerdict returns the verdict about the metric called name, or nil, and marks it as used.
func (l verdictList) findVerdict(name string) *verdict {
	var best *verdict
	for _, v := range l {
		// A full name has precedence over a prefix with "*", and a long prefix over a short one.
		prefix, pattern := strings.CutSuffix(v.name, "*")
		switch {
		case v.name == name:
			v.used = true
			return v
		case pattern && strings.HasPrefix(name, prefix) && (best == nil || len(v.name) > len(best.name)):
			best = v
		}
	}
	if best != nil {
		best.used = true
	}
	return best
}

func indexByName(families []Family) map[string]*Family {
	names := map[string]*Family{}
	for i := range families {
		names[families[i].Name] = &families[i]
	}
	return names
}
