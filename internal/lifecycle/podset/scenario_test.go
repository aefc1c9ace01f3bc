// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podset_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/lifecycle/podset"
	"github.com/seed81659283/nodeagent/internal/script"
)

// TestScenarios runs testdata/*.txt. A scenario lists the sets that sources report. The indented lines below a line are its
// refusals and the resulting merge. Lines:
//
//	named SOURCE...                    required sources
//	set SOURCE [incomplete] POD...     a pod is UID or UID/NAME; "-/NAME" has no UID, "nil" is a nil pod, and a pod with "!" at its
//	                                   end is invalid: its previous version stays, if there is one
func TestScenarios(t *testing.T) { script.Run(t, "testdata/*.txt", play) }

// scene is the state of a scenario.
type scene struct {
	merge   *podset.Merge
	sources map[string]bool
	uids    map[string]bool
}

// play runs a scenario and returns it with the results of each line.
func play(t *testing.T, text string) string {
	s := &scene{merge: podset.NewMerge(), sources: map[string]bool{}, uids: map[string]bool{}}
	var out bytes.Buffer
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "  ") {
			continue // expected result
		}
		fmt.Fprintln(&out, line)
		f := strings.Fields(line)
		switch {
		case len(f) == 0 || strings.HasPrefix(f[0], "#"):
		case f[0] == "named":
			s.merge = podset.NewMerge(f[1:]...)
		case f[0] == "set":
			s.set(&out, f[1], f[2:])
		default:
			t.Fatalf("unknown line %q", line)
		}
	}
	return out.String()
}

// set reports the set of a source, and writes the result.
func (s *scene) set(out *bytes.Buffer, source string, words []string) {
	set := podset.Set{Source: source}
	invalid := map[*corev1.Pod]bool{}
	for _, word := range words {
		if word == "incomplete" {
			set.Incomplete = true
			continue
		}
		bare, bad := strings.CutSuffix(word, "!")
		pod := newPod(bare)
		if pod != nil {
			s.uids[string(pod.UID)] = true
		}
		invalid[pod] = bad
		set.Pods = append(set.Pods, pod)
	}
	s.sources[source] = true
	before, _ := s.merge.LastSet(source)
	accepted, refusals := podset.Accept(before, set, func(old, pod *corev1.Pod) (*corev1.Pod, error) {
		if invalid[pod] {
			return old, fmt.Errorf("pod %s/%s: it is invalid", pod.Namespace, pod.Name)
		}
		return pod, nil
	})
	merge, more := s.merge.With(accepted)
	s.merge = merge
	for _, r := range slices.Concat(refusals, more) {
		fmt.Fprintln(out, "  refused:", r.Err)
	}
	s.describe(out)
}

// describe writes the pods of the merge.
func (s *scene) describe(out *bytes.Buffer) {
	line := func(what string, words []string) {
		if len(words) > 0 {
			fmt.Fprintf(out, "  %s: %s\n", what, strings.Join(words, " "))
		}
	}
	var wanted []string
	for pod := range s.merge.Pods() {
		word := string(pod.UID)
		if pod.Name != word {
			word += "/" + pod.Name
		}
		wanted = append(wanted, word+"("+s.merge.SourceOf(string(pod.UID))+")")
	}
	line("wanted", wanted)
	line("cannot run", slices.DeleteFunc(slices.Sorted(maps.Keys(s.uids)), func(uid string) bool { return !s.merge.IsRefused(uid) }))
	line("contested", slices.DeleteFunc(slices.Sorted(maps.Keys(s.sources)), func(name string) bool { return !s.merge.IsContested(name) }))
	line("is all", []string{fmt.Sprint(s.merge.IsComplete())})
}

// newPod returns the pod for a word: UID, UID/NAME, -/NAME or nil.
func newPod(word string) *corev1.Pod {
	if word == "nil" {
		return nil
	}
	uid, name, ok := strings.Cut(word, "/")
	if !ok {
		name = uid
	}
	if uid == "-" {
		uid = ""
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)}}
}
