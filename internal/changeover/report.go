// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package changeover

import (
	"fmt"
	"strings"
)

// Outcome is the effect of a change over on a pod.
type Outcome string

// The outcomes.
const (
	Keeps    Outcome = "keeps"    // its containers run on, and the agent manages them
	Loses    Outcome = "loses"    // its containers run on, without a record or a setting of the kubelet, or with a volume that is not set up again
	Refuses  Outcome = "refuses"  // its containers run on, and the agent neither restarts nor probes them
	Restarts Outcome = "restarts" // containers are stopped, and started again
	Stops    Outcome = "stops"    // containers are stopped
	Unknown  Outcome = "unknown"  // the pod could not be read
)

// Exit codes of a program that prints a [Report].
const (
	ExitKeeps   = 0 // all pods keep running, and the configuration is supported
	ExitChanges = 1 // a pod or a setting changes
	ExitUnread  = 2 // the node could not be read
)

// Report is the predicted effect of a change over.
type Report struct {
	// Settings are the errors of the configuration, one for each field and flag with an unsupported value. The agent does not start with such a value.
	Settings []string `json:"settings"`
	// Node are the reasons why the agent does not start on this machine, or changes all pods.
	Node []string `json:"node"`
	// Unread are the errors of sources that could not be read.
	Unread []string `json:"unread"`
	// Pods are the pods of the node, by namespace and name.
	Pods []PodReport `json:"pods"`
}

// PodReport is the effect on a pod.
type PodReport struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	UID       string   `json:"uid"`
	Outcome   Outcome  `json:"outcome"`
	Reasons   []string `json:"reasons"` // empty only for Keeps
}

// ExitCode returns [ExitUnread] if the node could not be read completely, [ExitChanges] if something changes, or else [ExitKeeps].
func (r *Report) ExitCode() int {
	code := ExitKeeps
	if len(r.Settings)+len(r.Node) > 0 {
		code = ExitChanges
	}
	for i := range r.Pods {
		switch r.Pods[i].Outcome {
		case Keeps:
		case Unknown:
			return ExitUnread
		default:
			code = ExitChanges
		}
	}
	if len(r.Unread) > 0 {
		return ExitUnread
	}
	return code
}

// Text returns the report for people: one line for each setting, reason and pod, and a summary. Names and messages are quoted where they have control
// characters.
func (r *Report) Text() string {
	var b strings.Builder
	for _, section := range []struct {
		title string
		lines []string
	}{{"setting", r.Settings}, {"node", r.Node}, {"not read", r.Unread}} {
		for _, line := range section.lines {
			fmt.Fprintf(&b, "%s: %s\n", section.title, printable(line))
		}
	}
	counts := map[Outcome]int{}
	for i := range r.Pods {
		p := &r.Pods[i]
		counts[p.Outcome]++
		fmt.Fprintf(&b, "pod %s/%s: %s", printable(p.Namespace), printable(p.Name), p.Outcome)
		for n, reason := range p.Reasons {
			fmt.Fprintf(&b, "%s%s", map[bool]string{true: ": ", false: "; "}[n == 0], printable(reason))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%d pods", len(r.Pods))
	for _, o := range []Outcome{Keeps, Loses, Refuses, Restarts, Stops, Unknown} {
		if counts[o] > 0 {
			fmt.Fprintf(&b, ", %s %d", o, counts[o])
		}
	}
	return b.String() + "\n"
}

// printable quotes a text with control characters, which could forge other lines.
func printable(text string) string {
	if quoted := fmt.Sprintf("%q", text); strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return quoted
	}
	return text
}
