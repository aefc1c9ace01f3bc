// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Parts of statuses and messages that differ between two pods of the same specification, and their replacements.
var incidental = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`[0-9a-f]{64}`), "ID"},
	{regexp.MustCompile(`[0-9a-f]{32}`), "UID"}, // of a static pod
	{regexp.MustCompile(`\b10\.\d+\.\d+\.\d+\b`), "IP"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ms|s) \(\d+(\.\d+)?(ms|s) including waiting\)`), "TIME"},
	{regexp.MustCompile(`\bused: \d+\b`), "used: N"}, // by the pods of other scenarios
	{regexp.MustCompile(`\bkube-api-access-\w{5}\b`), "kube-api-access"},
	{regexp.MustCompile(`\bn[12]_`), "NODE_"},
	{regexp.MustCompile(`\bn[12]\b`), "NODE"},
}

// unready are the containers that the message of a condition lists.
var unready = regexp.MustCompile(`(containers with unready status: )\[[^\]]*\]`)

// normalize replaces the incidental parts of a text.
func normalize(text string) string {
	for _, r := range incidental {
		text = r.pattern.ReplaceAllString(text, r.with)
	}
	return text
}

// sequence is the values of one part of a pod, each unequal to its predecessor.
type sequence []string

// add adds a value if it differs from the last one.
func (s *sequence) add(value string) {
	if value = normalize(value); len(*s) == 0 || (*s)[len(*s)-1] != value {
		*s = append(*s, value)
	}
}

// transcript has one sequence for each part of a pod: its objects, its phase, each condition, each container.
type transcript map[string]*sequence

// add adds a value to the sequence of a part.
func (t transcript) add(part, value string) {
	if t[part] == nil {
		t[part] = &sequence{}
	}
	t[part].add(value)
}

// lines returns a line for each part of a pod. Parts that never had a value have none.
func (t transcript) lines(pod string) map[string]string {
	lines := map[string]string{}
	for part, values := range t {
		if text := strings.Join(*values, " > "); text != "-" {
			line := pod + ": " + part + ": " + text
			lines[line] = line
		}
	}
	return lines
}

// transcribe returns the lines that describe the history of a pod.
func transcribe(pod string, h podHistory) map[string]string {
	t := transcript{}
	uids, configs := letters{}, letters{}
	for _, v := range h.versions {
		t.add("objects", uids.letter(string(v.pod.UID))+" "+stage(v))
		if hash := v.pod.Annotations[corev1.MirrorPodAnnotationKey]; hash != "" {
			t.add("mirrors", "manifest "+configs.letter(hash))
		}
		if !v.deleted {
			t.addStatus(&v.pod)
		}
	}
	lines := t.lines(pod)
	if len(h.versions) > 0 {
		for path, value := range finalStatus(&h.versions[len(h.versions)-1].pod) {
			line := fmt.Sprintf("%s: at last %s: %s", pod, path, value)
			lines[line] = line
		}
	}
	for _, e := range h.events {
		line := normalize(fmt.Sprintf("%s: event %s %s %s: %s", pod, e.Type, e.Reason, cmp.Or(e.InvolvedObject.FieldPath, "-"), e.Message))
		lines[line] = line
	}
	return lines
}

// letters names values in the order of their first use: A, B, C.
type letters map[string]string

func (l letters) letter(value string) string {
	if l[value] == "" {
		l[value] = string(rune('A' + len(l)))
	}
	return l[value]
}

// stage returns the stage of the life of an object.
func stage(v podVersion) string {
	switch {
	case v.deleted:
		return "deleted"
	case v.pod.DeletionTimestamp != nil:
		return "terminating"
	}
	return "created"
}

// addStatus adds the parts of a published status.
func (t transcript) addStatus(pod *corev1.Pod) {
	st := &pod.Status
	t.add("phase", string(cmp.Or(st.Phase, "-")))
	t.add("reason", cmp.Or(strings.TrimSuffix(st.Reason+" "+st.Message, " "), "-"))
	t.add("generation", fmt.Sprintf("%d observed %d", pod.Generation, st.ObservedGeneration))
	conditions := map[string]string{}
	for _, c := range st.Conditions {
		if c.Type == corev1.PodReadyToStartContainers {
			c.Message = "" // differs with the moment: the sandbox is not ready, or already removed
		}
		if len(st.ContainerStatuses)+sidecars(pod) > 1 { // containers become ready in one status or in several; each has a sequence of its own
			c.Message = unready.ReplaceAllString(c.Message, "$1[...]")
		}
		conditions[string(c.Type)] = strings.TrimRight(fmt.Sprint(c.Status, " ", c.Reason, " ", c.Message), " ")
	}
	for _, kind := range slices.Sorted(maps.Keys(union(conditions, t.parts("condition ")))) {
		t.add("condition "+kind, cmp.Or(conditions[kind], "-"))
	}
	for _, c := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses) {
		t.add("container "+c.Name, stateText(c.State))
		t.add("restarts of "+c.Name, fmt.Sprint(c.RestartCount))
		t.add("last state of "+c.Name, stateText(c.LastTerminationState))
		t.add("ready "+c.Name, fmt.Sprint(c.Ready))
	}
}

// sidecars returns the number of restartable init containers, whose readiness counts for the pod.
func sidecars(pod *corev1.Pod) (n int) {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].RestartPolicy != nil {
			n++
		}
	}
	return n
}

// parts returns the names of the parts that begin with prefix, without the prefix.
func (t transcript) parts(prefix string) map[string]string {
	parts := map[string]string{}
	for part := range t {
		if name, found := strings.CutPrefix(part, prefix); found {
			parts[name] = ""
		}
	}
	return parts
}

// stateText returns the state of a container without times and IDs.
func stateText(s corev1.ContainerState) string {
	switch {
	case s.Waiting != nil:
		return strings.TrimRight("waiting "+s.Waiting.Reason+" "+s.Waiting.Message, " ")
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		text := fmt.Sprintf("terminated %s %d", s.Terminated.Reason, s.Terminated.ExitCode)
		if s.Terminated.Message != "" {
			text += fmt.Sprintf(" %q", s.Terminated.Message)
		}
		return text
	}
	return "-"
}

// finalStatus returns the fields of the newest status that have no sequence of their own. Times and IDs are only "set".
func finalStatus(pod *corev1.Pod) map[string]string {
	text, _ := json.Marshal(pod.Status) // cannot fail: the object was decoded from JSON
	var status map[string]any
	_ = json.Unmarshal(text, &status)
	fields, final := map[string]string{}, map[string]string{}
	flatten("", status, fields)
	for path, value := range fields {
		path = normalize(path) // the path may have the name of a volume
		switch name := path[strings.LastIndex(path, ".")+1:]; {
		case isInSequence(path):
		case strings.HasSuffix(name, "Time") || strings.HasSuffix(name, "At") || strings.HasSuffix(name, "ID"):
			final[path] = "set"
		default:
			final[path] = normalize(value)
		}
	}
	return final
}

// sequencePaths matches the fields of a status that are in sequences.
var sequencePaths = regexp.MustCompile(`^(phase|reason|message|observedGeneration)$|^conditions\[\w+\]\.(type|status|reason|message)$|` +
	`ontainerStatuses\[[\w-]+\]\.(restartCount|ready|(state|lastState)\.\w+\.(reason|message|exitCode))$|^(hostIPs|podIPs)`)

func isInSequence(path string) bool { return sequencePaths.MatchString(path) }

// The lines of two pods with the same history are equal, although UIDs, addresses, times and node names differ. They have
// each state once, in the order of its publication.
func TestTranscribe(t *testing.T) {
	history := func(node, uid, ip, hash string) podHistory {
		var h podHistory
		add := func(deleted bool, phase corev1.PodPhase, state corev1.ContainerState) {
			v := podVersion{deleted: deleted}
			v.pod.Name, v.pod.UID, v.pod.Generation = "web-"+node, types.UID(uid), 1
			v.pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: hash}
			v.pod.Status = corev1.PodStatus{
				Phase: phase, PodIP: ip, StartTime: &metav1.Time{Time: time.Now()},
				ContainerStatuses: []corev1.ContainerStatus{{Name: "main", State: state, ContainerID: uid}},
				Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			}
			h.versions = append(h.versions, v)
		}
		add(false, corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}})
		add(false, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
		add(false, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
		add(false, corev1.PodFailed, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 2, Message: ip}})
		add(true, corev1.PodFailed, corev1.ContainerState{})
		h.events = []corev1.Event{{Type: "Normal", Reason: "Started", Message: "on " + node}}
		return h
	}
	first := transcribe("web", history("n1", "11111111-2222-3333-4444-555555555555", "10.1.2.3", "x"))
	require.Equal(t, first, transcribe("web", history("n2", "66666666-7777-8888-9999-aaaaaaaaaaaa", "10.4.5.6", "y")))
	require.Subset(t, slices.Collect(maps.Keys(first)), []string{
		"web: objects: A created > A deleted", "web: mirrors: manifest A", "web: phase: Pending > Running > Failed", "web: condition Ready: True",
		`web: container main: waiting ContainerCreating > running > terminated Error 2 "IP"`, "web: event Normal Started -: on NODE",
		"web: at last podIP: IP", "web: at last startTime: set", "web: generation: 1 observed 0",
	})
}
